"""Running a plan: in parallel, resumable, with the same result whatever ran it and however often."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import joblib
import pyarrow as pa

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import check_folder, check_table
from marconi_sim.base.notices import notice
from marconi_sim.base.progress import progress, status
from marconi_sim.core.radix.cache import UNLIMITED
from marconi_sim.simulation.simulate import replay_workload
from marconi_sim.sweeps.backends import dask_workers, local_processes
from marconi_sim.sweeps.file import finished_results, make_table, read_sweep, write_sweep
from marconi_sim.sweeps.journal import Journal, Results, journal_path, open_journal
from marconi_sim.sweeps.plan import Plan
from marconi_sim.sweeps.runs import Run
from marconi_sim.sweeps.worker import Chunk, Failure, policy_class, requests_file, run_chunk
from marconi_sim.trace.load import schedule

# Requests times runs of a chunk: about a tenth of a second, so that there is always something to hand out, little is
# lost when killed, and handing out costs next to nothing.
_CHUNK_REQUESTS = 50_000


def _chunks(runs: list[Run], plan: Plan, requests_dir: Path | None) -> list[Chunk]:
    folder = str(requests_dir.resolve()) if requests_dir else None
    chunks = []
    for configuration, group in groupby(runs, key=lambda run: run.configuration):
        members = list(group)
        size = max(1, _CHUNK_REQUESTS // configuration.schedule.requests)
        parts = (tuple(members[i : i + size]) for i in range(0, len(members), size))
        chunks += [Chunk(part, plan.search, folder) for part in parts]
    return chunks


def compile_kernels(plan: Plan, runs: Iterable[Run]) -> None:
    """Compile what the runs need into the cache on disk, which all workers read.

    Once here, or every worker would compile the same.
    """
    started = time.perf_counter()
    workload = next(iter(plan.workloads.values()))
    tiny = schedule(workload.trace, workload.arrivals, name=workload.name, sessions=1)
    compiled = set()
    for run in runs:
        words = tuple(key for key, value in run.params if isinstance(value, str))
        if (run.policy, words, run.rules) in compiled:
            continue
        compiled.add((run.policy, words, run.rules))
        with status(f"compiling policy {Path(run.policy).stem}"):
            policy = policy_class(run.policy, run.policy_sha256, plan.search)(**dict(run.params))
            for capacity in (1, UNLIMITED):
                replay_workload(tiny, policy, run.configuration.model, capacity, rules=run.rules)
    seconds = time.perf_counter() - started
    if seconds > 2:
        notice(
            f"compiled {len({name for name, *_ in compiled})} policies in {seconds:.1f} s; kept for later"
        )


def _run(
    plan: Plan, chunks: list[Chunk], journal: Journal, jobs: int | None, scheduler: str | None
) -> None:
    total = sum(len(chunk.runs) for chunk in chunks)
    where = dask_workers(scheduler) if scheduler else local_processes(jobs, len(chunks))
    with where as settings, joblib.parallel_config(**settings):
        compile_kernels(plan, (run for chunk in chunks for run in chunk.runs))
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        with progress("running", total, "runs") as advance:
            for found in parallel(joblib.delayed(run_chunk)(chunk) for chunk in chunks):
                if isinstance(found, Failure):
                    raise UserError(found.reason)
                journal.add(found)
                advance(len(found))


@dataclass(frozen=True)
class Swept:
    """A finished sweep.

    Attributes:
        table: its file's content.
        found: how many of its runs were finished before.
        ran: how many ran now.
        seconds: that took.
    """

    table: pa.Table
    found: int
    ran: int
    seconds: float


def remaining(plan: Plan, finished: dict[str, Results], requests_dir: Path | None) -> list[Run]:
    """Return the runs of a plan that are not finished, in its order."""
    return [
        run
        for run in plan.runs
        if run.key not in finished
        or (requests_dir is not None and not requests_file(requests_dir, run.key).exists())
    ]


def earlier_results(out: Path | None) -> dict[str, Results]:
    """Return the results in a sweep's file, none if there is no file.

    Raises:
        UserError: there is a file that is no sweep's.
    """
    return finished_results(read_sweep(out)) if out is not None and out.exists() else {}


def _remove_leftovers(folder: Path, pattern: str) -> None:
    """Delete what a killed sweep was writing."""
    for path in folder.glob(pattern):
        path.unlink(missing_ok=True)


def _finish(
    plan: Plan,
    journal: Journal,
    jobs: int | None,
    scheduler: str | None,
    requests_dir: Path | None,
) -> Swept:
    started = time.perf_counter()
    missing = remaining(plan, journal.finished, requests_dir)
    if missing:
        _run(plan, _chunks(missing, plan, requests_dir), journal, jobs, scheduler)
    table = make_table(plan, journal.finished)
    found = len(plan.runs) - len(missing)
    return Swept(table, found, len(missing), time.perf_counter() - started)


def run_plan(
    plan: Plan,
    *,
    out: Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    resume: bool = True,
    requests_dir: Path | None = None,
) -> Swept:
    """Run what is missing of a plan, and write its file; the arguments are those of `sweep`.

    Raises:
        UserError: a run fails, or a file cannot be used.
    """
    if out is not None:
        check_table(out)
    if requests_dir is not None:
        check_folder(requests_dir)
        _remove_leftovers(requests_dir, ".*.parquet.*.tmp")
    if out is None:
        return _finish(plan, Journal(None, {}), jobs, scheduler, requests_dir)
    with open_journal(out, resume) as journal:
        _remove_leftovers(out.resolve().parent, f".{glob.escape(out.name)}.*.tmp")
        if resume:
            journal.finished = earlier_results(out) | journal.finished
        try:
            swept = _finish(plan, journal, jobs, scheduler, requests_dir)
        except KeyboardInterrupt:
            notice(
                f"finished runs are kept in {journal_path(out)}; the same command goes on from there"
            )
            raise
        write_sweep(swept.table, out)
        return swept


def default_requests_dir(out: Path) -> Path:
    """Return where the requests of a sweep go: FILE.requests/ beside FILE.parquet."""
    return out.with_name(f"{out.stem}.requests")
