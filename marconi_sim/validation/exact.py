"""Is reuse exact? The logits of a replay with a cache against prefills from nothing, and mistakes that must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from marconi_sim.adapters.backend import Backend
from marconi_sim.model import Model
from marconi_sim.policy.base import Policy
from marconi_sim.trace.load import Workload
from marconi_sim.validation.mistakes import OneTokenOff, WrongPrefix
from marconi_sim.validation.replaying import replay_on_model

EXACT = 1e-9  # in float64, logits that differ by more are not the same
WRONG = 0.1  # a mistake must move the logits by at least so much


class Exactness(NamedTuple):
    """What a backend's replay showed.

    backend: its name.
    requests, reusing: how many there were, and how many of them reused something.
    splits, merges, evictions, checkpoints: how many the adapter carried out.
    branch_checkpoints: states taken inside an input, where a later sequence may branch off.
    error: largest difference of a logit to a prefill from nothing.
    one_token_off, wrong_prefix: the same of two mistakes, median over the requests that reused something.
    bytes: held by adapter and simulator alike after the last request.
    """

    backend: str
    requests: int
    reusing: int
    splits: int
    merges: int
    evictions: int
    checkpoints: int
    branch_checkpoints: int
    error: float
    one_token_off: float
    wrong_prefix: float
    bytes: int

    @property
    def passed(self) -> bool:
        """Whether reuse is exact, mistakes show, and everything that can happen happened."""
        happened = (
            self.reusing, self.splits, self.merges, self.evictions, self.branch_checkpoints
        )  # fmt: skip
        noticed = min(self.one_token_off, self.wrong_prefix) > WRONG
        return self.error < EXACT and noticed and min(happened) > 0


def check_exactness(
    workload: Workload,
    policy: Policy,
    model: Model,
    capacity: int,
    backend: Backend,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Exactness:
    """Replay a workload three times, right and with two mistakes, and compare the logits of every request.

    Args:
        workload, policy, model, capacity, backend, seed, advance: as `replay_on_model`.

    Raises:
        UserError: adapter and simulator disagree about bytes.
    """
    everything = range(workload.requests)
    runs = [
        replay_on_model(
            workload, policy, model, capacity, one, seed=seed, compare=everything, advance=advance
        )
        for one in (backend, OneTokenOff(backend), WrongPrefix(backend))
    ]
    right = runs[0]
    reusing = (right.requests.reused_tokens > 0).to_numpy()
    errors = [run.requests.logit_error.to_numpy() for run in runs]
    summary, events = right.result.summary, right.events
    return Exactness(
        backend=backend.name,
        requests=workload.requests,
        reusing=int(reusing.sum()),
        splits=events["split"],
        merges=events["merge"],
        evictions=summary["evictions"],
        checkpoints=events["checkpoint"],
        branch_checkpoints=right.branch_checkpoints,
        error=float(errors[0].max()),
        one_token_off=float(np.median(errors[1][reusing])) if reusing.any() else 0.0,
        wrong_prefix=float(np.median(errors[2][reusing])) if reusing.any() else 0.0,
        bytes=int(right.requests.held_bytes.iloc[-1]),
    )
