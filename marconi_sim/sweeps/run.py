"""`sweep`: an experiment's runs, in parallel, resumable, with the same result whatever ran them and however often."""

from __future__ import annotations

import glob
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import pyarrow as pa

from marconi_sim.base.catalogue import own_folders
from marconi_sim.base.errors import UsageError, UserError, check_argument
from marconi_sim.base.files import check_folder, check_table
from marconi_sim.base.notices import notice
from marconi_sim.base.progress import progress, status
from marconi_sim.core.radix.cache import UNLIMITED
from marconi_sim.simulation.simulate import replay_workload
from marconi_sim.sweeps.experiment import load_experiment
from marconi_sim.sweeps.file import finished_results, make_table, read_sweep, write_sweep
from marconi_sim.sweeps.journal import Journal, Results, journal_path, open_journal
from marconi_sim.sweeps.plan import Plan, Run, make_plan
from marconi_sim.sweeps.worker import Chunk, Failure, policy_class, requests_file, run_chunk
from marconi_sim.trace.load import schedule

if TYPE_CHECKING:
    import pandas as pd

# Requests times runs of a chunk: about a tenth of a second, so that there is always something to hand out, little is
# lost when killed, and handing out costs next to nothing.
_CHUNK_REQUESTS = 50_000
_CONNECT_SECONDS = 10
_WATCH_SECONDS = 0.5


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


@contextmanager
def _dask(scheduler: str) -> Iterator[dict[str, Any]]:
    try:
        from distributed import Client
        from distributed.comm import parse_address, parse_host_port
    except ImportError as error:
        raise UsageError(
            "backend 'dask' needs the package distributed; install it: pip install 'marconi-sim[dask]'"
        ) from error
    try:
        # First by hand: a client that finds nobody tries for another 20 s when it is thrown away.
        place = parse_host_port(parse_address(scheduler)[1])
        socket.create_connection(place, timeout=_CONNECT_SECONDS).close()
        client = Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(
            f"scheduler '{scheduler}': cannot be reached ({reason}); start one with 'dask scheduler' and give its"
            " address, e.g. tcp://host:8786"
        ) from error
    with client:
        if not client.ncores():
            raise UserError(
                f"scheduler '{scheduler}': has no workers; start some with 'dask worker {scheduler}'"
            )
        yield {"backend": "dask", "client": client}


def _prepare_worker(parent: int) -> None:
    """Let this worker end when the process that started it has ended, even by kill -9: it would wait for minutes.

    What a policy prints goes to stderr: the stdout that a worker inherits is for results.
    """
    sys.stdout = sys.stderr

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _local(jobs: int | None, chunks: int) -> Iterator[dict[str, Any]]:
    wanted = jobs or joblib.cpu_count()
    yield {
        "backend": "loky",
        "n_jobs": max(1, min(wanted, chunks)),
        "initializer": _prepare_worker,
        "initargs": (os.getpid(),),
    }


def _run(
    plan: Plan, chunks: list[Chunk], journal: Journal, jobs: int | None, scheduler: str | None
) -> None:
    total = sum(len(chunk.runs) for chunk in chunks)
    where = _dask(scheduler) if scheduler else _local(jobs, len(chunks))
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


def sweep(
    experiment: str | Path,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    resume: bool = True,
    requests_dir: str | Path | None = None,
    search: Iterable[str | Path] = (),
) -> pd.DataFrame:
    """Run every combination of an experiment; return one row per run.

    Args:
        experiment: a name in the catalogue, or the path of a `.toml` file; see `marconi_sim.sweeps.experiment`.
        out: file for the rows (Parquet); default none. The same experiment gives the same bytes, however it is run.
        jobs: worker processes, at least 1; default one per core.
        scheduler: address of a Dask scheduler, e.g. `tcp://host:8786`: run on its workers instead, which need the same
            package, and the same paths if the experiment names files.
        resume: take finished runs from `out` and its journal; otherwise begin anew.
        requests_dir: folder for one file per run with a row per request, named by the column `run`; default
            `OUT.requests` beside `out` if the experiment asks for requests.
        search: the user's catalogue folders.

    Raises:
        UsageError: an unknown name, or an argument that is not allowed.
        UserError: a mistake in the experiment, a policy that fails, or a file that cannot be used.
    """
    for name, path in (("out", out), ("requests_dir", requests_dir)):
        if path is not None:
            check_argument(name, path, (str, Path), "the path of a file or a folder")
    if scheduler is not None:
        check_argument("scheduler", scheduler, (str,), "an address, e.g. 'tcp://host:8786'")
    check_argument("resume", resume, (bool,), "True or False")
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise UsageError(f"jobs {jobs}: must be a whole number of at least 1")
    if jobs is not None and scheduler is not None:
        raise UsageError(f"jobs {jobs}: has no effect with a scheduler, whose workers decide")
    folders = own_folders(search)
    loaded = load_experiment(experiment, folders)
    target = None if out is None else Path(out)
    folder = None if requests_dir is None else Path(requests_dir)
    if folder is None and loaded.requests:
        if target is None:
            raise UsageError(
                f"experiment '{loaded.name}' writes a file of requests per run: give out or requests_dir"
            )
        folder = default_requests_dir(target)
    frame: pd.DataFrame = run_plan(
        make_plan(loaded, folders),
        out=target,
        jobs=jobs,
        scheduler=scheduler,
        resume=resume,
        requests_dir=folder,
    ).table.to_pandas()
    return frame
