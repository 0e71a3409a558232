"""`sweep`: from an experiment's name to one row per run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from marconi_sim.base.catalogue import own_folders
from marconi_sim.base.errors import UsageError, check_argument
from marconi_sim.sweeps.experiment import load_experiment
from marconi_sim.sweeps.plan import make_plan
from marconi_sim.sweeps.run import default_requests_dir, run_plan

if TYPE_CHECKING:
    import pandas as pd


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
