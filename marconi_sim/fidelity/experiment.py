"""Replay traces at several capacities under the published code's rules, the paper's, and every single departure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError
from marconi_sim.base.units import parse_bytes
from marconi_sim.core.departures import ARTIFACT, PAPER, Departures
from marconi_sim.fidelity.switches import CASES, switches_of
from marconi_sim.model import Model
from marconi_sim.simulation.simulate import simulate
from marconi_sim.trace.load import Workload
from marconi_sim.trace.recipe import load_recipe

Row = dict[str, Any]
SHARES = (0.25, 0.5, 1.0)  # of the capacity that a trace's recipe names
_BASES = {"artifact": ARTIFACT, "paper": PAPER}
# Columns of a simulation's summary that a row takes over.
_KEPT = (
    "trace", "trace_sha256", "synthetic", "policy", "policy_sha256", "model", "capacity_bytes", "requests", "rules",
    "token_hit_rate", "request_hit_rate", "evictions", "bypassed", "version",
)  # fmt: skip


class Job(NamedTuple):
    """All replays of one case, a key of `CASES`, on one trace at one capacity (bytes)."""

    trace: str
    capacity: int
    case: str


def real_traces(search: Iterable[str | Path] = ()) -> list[str]:
    """Return the names of the shipped traces that are not synthetic."""
    folder = catalogue.shipped()
    return [
        name
        for name, path in catalogue.entries("traces", search).items()
        if path.is_relative_to(folder)
        and path.suffix == ".toml"
        and not load_recipe(path).synthetic
    ]


def default_capacities(workload: Workload) -> tuple[int, ...]:
    """Return a quarter, a half and all of the capacity that the trace's recipe names.

    Raises:
        UsageError: the trace is a bare file.
    """
    if workload.recipe is None:
        raise UsageError(f"trace '{workload.name}': has no recipe; give --capacity")
    return tuple(int(share * workload.recipe.capacity) for share in SHARES)


def make_jobs(workloads: Sequence[Workload], capacities: Sequence[str]) -> list[Job]:
    """Return the jobs for some traces; `capacities` as text with a unit, empty for the default ones.

    Raises:
        UsageError: a capacity that is not understood, or none for a bare file.
    """
    given = tuple(parse_bytes(capacity) for capacity in capacities)
    return [
        Job(workload.name, capacity, case)
        for workload in workloads
        for capacity in given or default_capacities(workload)
        for case in CASES
    ]


def _replay(workload: Workload, job: Job, model: Model, departures: Departures) -> Row:
    policy, params = CASES[job.case]
    summary = simulate(
        workload,
        policy=policy,
        capacity=job.capacity,
        model=model,
        params=params,
        rules=departures,
    ).summary
    return {
        "case": job.case,
        "title": workload.recipe.title if workload.recipe else "no recipe",
        **{key: summary[key] for key in _KEPT},
        "flops_saved_share": summary["flops_saved"] / summary["flops_total"],
        "peak_over_capacity": summary["peak_bytes"] / summary["capacity_bytes"],
        "tuned_alpha": summary.get("tuned_alpha"),
        "first_eviction_request": summary.get("first_eviction_request"),
    }


def run_job(workload: Workload, job: Job, model: Model) -> list[Row]:
    """Return a row for each base (the code, the paper), as it is and with each switch that concerns the case flipped.

    Columns beside those of a summary: `base`, `switch` (empty for the base itself) and `token_hit_rate_change`, from
    the base.
    """
    rows = []
    for base, departures in _BASES.items():
        of_base = _replay(workload, job, model, departures)
        rows.append({"base": base, "switch": "", "token_hit_rate_change": 0.0, **of_base})
        for switch in switches_of(job.case):
            flipped = departures._replace(**{switch.name: base == "paper"})
            row = _replay(workload, job, model, flipped)
            change = row["token_hit_rate"] - of_base["token_hit_rate"]
            rows.append(
                {"base": base, "switch": switch.name, "token_hit_rate_change": change, **row}
            )
    return rows


def run_jobs(
    workloads: Sequence[Workload],
    jobs: Sequence[Job],
    model: Model,
    threads: int,
    advance: Callable[[int], None],
) -> list[Row]:
    """Run all jobs, on several threads (the kernels run without Python's lock); rows are in order of jobs."""
    import joblib

    by_name = {workload.name: workload for workload in workloads}
    # Compile the kernels once, before several threads ask for them.
    smallest = min(workloads, key=lambda workload: workload.requests)
    for job in [job for job in jobs if job.trace == smallest.name]:
        _replay(smallest, job, model, PAPER)
    found: dict[Job, list[Row]] = {}

    def task(job: Job) -> tuple[Job, list[Row]]:
        return job, run_job(by_name[job.trace], job, model)

    parallel = joblib.Parallel(n_jobs=threads, prefer="threads", return_as="generator_unordered")
    largest_first = sorted(jobs, key=lambda job: -by_name[job.trace].requests * job.capacity)
    for job, rows in parallel(joblib.delayed(task)(job) for job in largest_first):
        found[job] = rows
        advance(1)
    return [row for job in jobs for row in found[job]]
