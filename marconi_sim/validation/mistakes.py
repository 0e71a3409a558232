"""Backends that make a mistake on purpose: a comparison that does not notice them proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from marconi_sim.adapters.backend import KV, Backend, Prefilled, State


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
        early = {cut: cut - 1 for cut in cuts}
        wanted = {*cuts, *(cut for cut in early.values() if cut > start)}
        done = self._backend.prefill(tokens, start, kv, state, sorted(wanted))
        first = done.states.get(start + 1, ()) if state is None else state
        before = {cut: done.states.get(early[cut], first) for cut in cuts}
        return done._replace(states=before)


class WrongPrefix(_Wrapped):
    """Continues from the state of the sequence before."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._last: State | None = None

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill as the backend does, from another state if one is given."""
        done = self._backend.prefill(
            tokens, start, kv, state if state is None else self._last or state, cuts
        )
        if start == 0 and cuts:
            self._last = done.states[cuts[0]]
        return done
