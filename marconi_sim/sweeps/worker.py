"""What a worker of a sweep does: a chunk of runs, given as plain names and numbers.

A worker loads what they name once and keeps it, so that the runs of a trace and of an arrival schedule share it.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any, NamedTuple

from marconi_sim.base.columns import IDENTITY, METRICS, SETTINGS
from marconi_sim.base.errors import UserError
from marconi_sim.base.units import parse_bytes
from marconi_sim.core.radix.cache import UNLIMITED
from marconi_sim.model import Model
from marconi_sim.policy.base import Policy
from marconi_sim.policy.load import load_policy
from marconi_sim.simulation.simulate import replay_workload
from marconi_sim.sweeps.journal import Results
from marconi_sim.sweeps.runs import (
    WORKING_SET_POLICY,
    Configuration,
    Run,
    Schedule,
    working_set_fraction,
)
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.load import Workload, open_trace, schedule

_LOADING = threading.Lock()  # a Dask worker may have several threads


class Chunk(NamedTuple):
    """Some runs of one configuration.

    search: the user's catalogue folders.
    requests_dir: where each run writes its requests; None: nowhere.
    """

    runs: tuple[Run, ...]
    search: tuple[str, ...]
    requests_dir: str | None


class Failure(NamedTuple):
    """What went wrong, in one line."""

    reason: str


@functools.lru_cache(maxsize=2)
def _trace(name: str, search: tuple[str, ...]) -> tuple[str, Trace, Any]:
    return open_trace(name, search)


@functools.lru_cache(maxsize=4)
def _workload(of: Schedule, search: tuple[str, ...]) -> Workload:
    name, trace, recipe = _trace(of.trace, search)
    if trace.sha256 != of.trace_sha256:
        raise UserError(f"trace '{of.trace}': this worker has another version of it")
    return schedule(trace, of.arrivals, name=name, sessions=of.sessions, recipe=recipe)


@functools.lru_cache(maxsize=64)
def policy_class(name: str, sha256: str, search: tuple[str, ...]) -> type[Policy]:
    """Return the policy of a run.

    Raises:
        UserError: its file is not the one that the run was planned with.
    """
    cls = load_policy(name, search)
    if cls.sha256 != sha256:
        raise UserError(f"policy '{name}': this worker has another version of it")
    return cls


@functools.lru_cache(maxsize=64)
def _working_set(of: Schedule, model: Model, search: tuple[str, ...]) -> int:
    unbounded = load_policy(WORKING_SET_POLICY)()
    result = replay_workload(_workload(of, search), unbounded, model, UNLIMITED)
    return int(result.summary["peak_bytes"])


def _capacity(configuration: Configuration, search: tuple[str, ...]) -> int:
    fraction = working_set_fraction(configuration.capacity)
    if fraction is None:
        return parse_bytes(configuration.capacity)
    whole = _working_set(configuration.schedule, configuration.model, search)
    return max(1, int(fraction * whole))


def requests_file(requests_dir: str | Path, key: str) -> Path:
    """Return where a run writes its requests."""
    return Path(requests_dir) / f"{key}.parquet"


def _results(run: Run, chunk: Chunk) -> Results:
    configuration = run.configuration
    with _LOADING:
        workload = _workload(configuration.schedule, chunk.search)
        policy = policy_class(run.policy, run.policy_sha256, chunk.search)(**dict(run.params))
        capacity = _capacity(configuration, chunk.search)
    result = replay_workload(workload, policy, configuration.model, capacity, rules=run.rules)
    if chunk.requests_dir is not None:
        # Before the result is told: who finds a run finished finds its file.
        Path(chunk.requests_dir).mkdir(parents=True, exist_ok=True)
        result.write_requests(requests_file(chunk.requests_dir, run.key))
    row = result.row()
    known = {*SETTINGS, *METRICS, *IDENTITY, "seconds"}
    findings = [name for name in row if name not in known and not name.startswith("param_")]
    return {name: row[name] for name in ("capacity_bytes", *METRICS, *findings)}


def run_chunk(chunk: Chunk) -> list[tuple[str, Results]] | Failure:
    """Run a chunk in whatever process this is; return (key, results) of every run."""
    found = []
    for run in chunk.runs:
        try:
            found.append((run.key, _results(run, chunk)))
        except UserError as error:
            place = run.configuration
            return Failure(
                f"policy '{run.policy}' {dict(run.params)} on trace '{place.schedule.trace}' with capacity"
                f" {place.capacity}: {error}"
            )
    return found
