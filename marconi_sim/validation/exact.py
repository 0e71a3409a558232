"""Is reuse exact? The logits of a replay with a cache against prefills from nothing, and mistakes that must show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from marconi_sim.adapters.exactness import EXACT, NOTICED, strict_float64
from marconi_sim.adapters.families import FAMILIES
from marconi_sim.adapters.load import model_of, open_backend
from marconi_sim.policy.base import Policy
from marconi_sim.simulation.simulate import choose_policy
from marconi_sim.trace.export.reduce import reduce_workload
from marconi_sim.trace.load import Workload, load_trace
from marconi_sim.validation.mistakes import OneTokenOff, WrongPrefix
from marconi_sim.validation.replaying import replay_on_model, unbounded_bytes

BACKENDS = ("tiny", *FAMILIES)
_FILLED = 0.4  # of what a cache without limit would hold: little enough that everything happens


class Setting(NamedTuple):
    """What is replayed on every backend."""

    workload: Workload
    policy: Policy


class Exactness(NamedTuple):
    """What a backend's replay showed.

    backend: its name.
    requests, reusing: how many there were, and how many of them reused something.
    splits, merges, evictions, checkpoints: how many the adapter carried out.
    branch_checkpoints: states taken inside an input, where a later sequence may branch off.
    error: largest difference of a logit to a prefill from nothing.
    one_token_off, wrong_prefix: the same of two mistakes, median over the requests that reused something.
    one_token_off_noticed, wrong_prefix_noticed: in how many of these requests it is above `NOTICED`; a wrong state is
        forgotten with the tokens that follow it, so not in all.
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
    one_token_off_noticed: int
    wrong_prefix_noticed: int
    bytes: int

    @property
    def verdict(self) -> str:
        """`exact`, or what is wrong."""
        if not self.reusing:
            return "nothing reused"
        if not self.error < EXACT:
            return "NOT EXACT"
        if 2 * min(self.one_token_off_noticed, self.wrong_prefix_noticed) < self.reusing:
            return "mistakes not noticed"
        return "exact"

    @property
    def passed(self) -> bool:
        """Whether something was reused, exactly, and mistakes show in half of the requests that reuse."""
        return self.verdict == "exact"


def prepare_exact(
    trace: str | Path,
    policy: str | Path,
    requests: int,
    longest: int,
    search: Iterable[str | Path] = (),
) -> Setting:
    """Load a trace and reduce it to a few short requests.

    Raises:
        UsageError: an unknown name, or a value that is not allowed.
        UserError: a file that cannot be used.
    """
    torch.set_num_threads(1)  # the models are too small for more
    search = tuple(search)
    whole = load_trace(trace, search=search)
    chosen = choose_policy(policy, {}, whole, search)
    return Setting(reduce_workload(whole, requests, longest), chosen)


def check_backend(
    setting: Setting, name: str, seed: int = 0, advance: Callable[[int], None] = lambda _: None
) -> Exactness:
    """Make a backend in float64 and replay on it three times, right and with two mistakes.

    The logits of every request are compared with a prefill from nothing.

    Args:
        setting: what is replayed.
        name: as `open_backend` takes it.
        seed: of tokens and weights.
        advance: called with 1 after each request of each replay.

    Raises:
        UsageError: an unknown backend.
        UserError: a family that is refused, or adapter and simulator disagree about bytes.
    """
    workload = setting.workload
    backend = open_backend(name, dtype="float64", seed=seed)
    with strict_float64():
        model = model_of(backend)
        capacity = int(unbounded_bytes(workload, model) * _FILLED)
        runs = [
            replay_on_model(
                workload, setting.policy, model, capacity, one,
                seed=seed, compare=range(workload.requests), advance=advance,
            )
            for one in (backend, OneTokenOff(backend), WrongPrefix(backend))
        ]  # fmt: skip
    right = runs[0]
    reusing = (right.requests.reused_tokens > 0).to_numpy()
    error, off, other = (run.requests.logit_error.to_numpy() for run in runs)
    events = right.events
    return Exactness(
        backend=name,
        requests=workload.requests,
        reusing=int(reusing.sum()),
        splits=events["split"],
        merges=events["merge"],
        evictions=right.result.summary["evictions"],
        checkpoints=events["checkpoint"],
        branch_checkpoints=right.branch_checkpoints,
        error=float(error.max()),
        one_token_off=float(np.median(off[reusing])) if reusing.any() else 0.0,
        wrong_prefix=float(np.median(other[reusing])) if reusing.any() else 0.0,
        one_token_off_noticed=int((off[reusing] > NOTICED).sum()),
        wrong_prefix_noticed=int((other[reusing] > NOTICED).sum()),
        bytes=int(right.requests.held_bytes.iloc[-1]),
    )
