"""A backend on its own: a prefill from a restored prefix against one from nothing, and wrong states that must show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from marconi_sim.adapters.backend import Backend, State, join_kv, slice_kv
from marconi_sim.adapters.exactness import EXACT, NOTICED, largest_error

# Tokens after which logits are compared: a wrong state is forgotten with the tokens that follow. Two and not one: code
# for a single token is often code of its own.
_FRESH = 2


class Exactness(NamedTuple):
    """Largest absolute errors of a token's logits, against a prefill from nothing.

    Attributes:
        error: from the restored prefix, at the last token and soon after the prefix.
        wrong_prefix: with the state of another prefix of the same length, soon after it.
        state_before: with the state one token before the prefix's end.
        state_after: with the state one token after it.
    """

    error: float
    wrong_prefix: float
    state_before: float
    state_after: float

    @property
    def exact(self) -> bool:
        """Whether the right state gives the right logits, and no wrong one does."""
        return self.error < EXACT and min(self[1:]) > NOTICED


def wrong_states(backend: Backend, tokens: Tensor, position: int) -> tuple[State, State, State]:
    """Return states that are wrong after the tokens [0, position).

    Args:
        backend: any.
        tokens: (n,), int64.
        position: tokens of the prefix, from 2 to n - 1.

    Returns:
        The state of another prefix of the same length; the state one token before; the state one token after.

    Raises:
        ValueError: a position that leaves no room for one before it or after it.
    """
    if not 2 <= position < len(tokens):
        raise ValueError(f"position = {position}, expected 2 to {len(tokens) - 1}")
    # Another token everywhere: the next one in the vocabulary.
    other = (tokens[:position] + 1) % backend.vocabulary
    wrong = backend.prefill(other, 0, None, None, (position,)).states[position]
    before, after = position - 1, position + 1
    states = backend.prefill(tokens[:after], 0, None, None, (before, after)).states
    return wrong, states[before], states[after]


def check_exactness(
    backend: Backend, tokens: Tensor, position: int, pieces: Sequence[int] = ()
) -> Exactness:
    """Restore a prefix, prefill the rest, and compare with a prefill from nothing.

    The KV comes from the prefill from nothing, cut where `pieces` says and joined again; the state from another pass.

    Args:
        backend: in float64 for `Exactness.exact`, and inside `strict_float64` if it is one of transformers.
        tokens: (n,), int64.
        position: tokens of the prefix, from 2 to n - 1.
        pieces: positions in (0, position), ascending, where the KV is cut.

    Raises:
        ValueError: a position that leaves no room for a state before it or tokens after it.
    """
    wrong = wrong_states(backend, tokens, position)
    full = backend.prefill(tokens, 0, None, None, ())
    soon = tokens[: position + _FRESH]
    full_soon = backend.prefill(soon, 0, None, None, ())
    edges = [slice_kv(full.kv, a, b) for a, b in pairwise([0, *pieces, position])]
    state = backend.prefill(tokens[:position], 0, None, None, (position,)).states[position]

    def error(state: State, of: Tensor, expected: Tensor) -> float:
        rest = backend.prefill(of[position:], position, join_kv(edges), state, ())
        return largest_error(rest.last_logits, expected)

    whole, near = full.last_logits, full_soon.last_logits
    errors = [error(state, tokens, whole), error(state, soon, near)]
    return Exactness(max(errors), *(error(each, soon, near) for each in wrong))
