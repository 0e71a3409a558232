"""Backends that make a mistake on purpose: a comparison that does not notice them proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from marconi_sim.adapters.backend import KV, Backend, Prefilled, State

_OTHER = 19  # tokens of the other sequence


class _Wrapped:
    """A backend around another one."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class OneTokenOff(_Wrapped):
    """Gives states that have not seen the last token of their prefix."""

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill as the backend does, with each state from one token before its cut."""
        wanted = {*cuts, *(cut - 1 for cut in cuts if cut - 1 > start)}
        done = self._backend.prefill(tokens, start, kv, state, sorted(wanted))
        # Before the first token computed is what the prefill began with; from nothing, only the right state is at hand.
        first = done.states.get(start + 1, ()) if state is None else state
        before = {cut: done.states.get(cut - 1, first) for cut in cuts}
        own = {cut: tuple(tensor.clone() for tensor in one) for cut, one in before.items()}
        return done._replace(states=own)


class WrongPrefix(_Wrapped):
    """Continues every prefill from the state of another sequence."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        generator = torch.Generator().manual_seed(_OTHER)
        other = torch.randint(backend.vocabulary, (_OTHER,), generator=generator)
        self._state = backend.prefill(other, 0, None, None, (_OTHER,)).states[_OTHER]

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill as the backend does, from the other state if one is given."""
        return self._backend.prefill(
            tokens, start, kv, None if state is None else self._state, cuts
        )
