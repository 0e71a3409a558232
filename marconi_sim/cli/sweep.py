"""`marconi-sim sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marconi_sim.base.errors import UsageError
from marconi_sim.cli.options import catalogue_option, jobs_option, json_option, path_option
from marconi_sim.cli.output import policies_at_work, print_json

if TYPE_CHECKING:
    import pyarrow as pa

    from marconi_sim.sweeps.plan import Plan


@click.command("sweep")
@click.argument("experiment", metavar="NAME|FILE")
@path_option("--out", help="One row per run (Parquet). Default: NAME.parquet here.")
@jobs_option
@click.option(
    "--backend",
    type=click.Choice(("joblib", "dask")),
    default="joblib",
    show_default=True,
    help="Processes on this machine, or the workers of a Dask cluster.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Of the Dask cluster, e.g. tcp://host:8786.")
@click.option(
    "--resume/--no-resume",
    default=True,
    show_default=True,
    help="Keep the finished runs of FILE and of its journal, or begin anew.",
)
@path_option(
    "--requests-dir",
    metavar="FOLDER",
    help="Write one file per run with a row per request. Default: FILE.requests if the experiment asks for it.",
)
@click.option("--dry-run", is_flag=True, help="Print what would run, and run nothing.")
@catalogue_option
@json_option
def sweep_command(
    experiment: str,
    out: Path | None,
    jobs: int | None,
    backend: str,
    scheduler: str | None,
    resume: bool,
    requests_dir: Path | None,
    dry_run: bool,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run every combination of an experiment, in parallel, and write one row per run.

    A sweep that was interrupted goes on where it stopped. The file is the same whatever ran it, and how often.

    \b
      marconi-sim sweep fig07 --dry-run
      marconi-sim sweep fig07 -j 2 --out fig07.parquet
      marconi-sim sweep ./mine.toml --backend dask --scheduler tcp://host:8786
    """
    if backend == "dask" and scheduler is None:
        raise UsageError(
            "--backend dask: give the cluster's address too, e.g. --scheduler tcp://host:8786"
        )
    if backend != "dask" and scheduler is not None:
        raise UsageError(f"--scheduler {scheduler}: has no effect without --backend dask")
    if backend == "dask" and jobs is not None:
        raise UsageError(f"--jobs {jobs}: has no effect with --backend dask, the cluster decides")
    from marconi_sim.base.files import check_table
    from marconi_sim.base.progress import status
    from marconi_sim.figures.spec import figures_of
    from marconi_sim.sweeps.experiment import load_experiment

    loaded = load_experiment(experiment, search)
    figures_of(loaded)  # a mistake in a figure is told before its runs, not after them
    target = out or Path(f"{loaded.name}.parquet")
    check_table(target)
    with policies_at_work(), status("reading traces and policies"):
        from marconi_sim.sweeps.plan import make_plan
        from marconi_sim.sweeps.run import default_requests_dir, run_plan

        plan = make_plan(loaded, search)
    if requests_dir is None and loaded.requests:
        requests_dir = default_requests_dir(target)
    if dry_run:
        _print_plan(plan, target, requests_dir, resume, as_json)
        return
    with policies_at_work():
        swept = run_plan(
            plan,
            out=target,
            jobs=jobs,
            scheduler=scheduler,
            resume=resume,
            requests_dir=requests_dir,
        )
    done = {
        "experiment": loaded.name,
        "out": str(target),
        "requests_dir": None if requests_dir is None else str(requests_dir),
        "rows": swept.table.num_rows,
        "runs": len(plan.runs),
        "finished_before": swept.found,
        "ran": swept.ran,
        "seconds": swept.seconds,
    }
    if as_json:
        print_json(done)
        return
    _print_results(swept.table, loaded.title)
    before = f", {swept.found:,} were finished before" if swept.found else ""
    click.echo(f"{swept.ran:,} runs in {swept.seconds:.1f} s{before}")
    click.echo(
        f"{swept.table.num_rows:,} rows in {target}"
        + (f", requests of each run in {requests_dir}/" if requests_dir else "")
    )


def _print_plan(
    plan: Plan, out: Path, requests_dir: Path | None, resume: bool, as_json: bool
) -> None:
    from marconi_sim.sweeps.journal import finished_in_journal
    from marconi_sim.sweeps.run import earlier_results, remaining

    finished = earlier_results(out) | finished_in_journal(out) if resume else {}
    missing = {run.key for run in remaining(plan, finished, requests_dir)}
    if as_json:
        found = {
            "experiment": plan.experiment.name,
            "out": str(out),
            "runs": len(plan.runs),
            "finished": len(plan.runs) - len(missing),
            "rows": [{**row.settings, "finished": row.run.key not in missing} for row in plan.rows],
        }
        print_json(found)
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"[bold]{plan.experiment.title}[/]")
    console.print(" ".join(plan.experiment.description.split()))
    console.print(_combinations_table(plan))
    requests = len({run.configuration for run in plan.runs})
    click.echo(
        f"{requests:,} configurations, {len(plan.runs):,} runs, {len(plan.runs) - len(missing):,} of them finished;"
        f" would write {out}" + (f" and a file per run in {requests_dir}/" if requests_dir else "")
    )


def _combinations_table(plan: Plan) -> Any:
    """Return what is combined with what: one line per trace, model and policy."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for title in ("", "name", "values"):
        table.add_column(title, no_wrap=title == "name")
    experiment = plan.experiment
    for kind, grids in (("trace", experiment.traces), ("model", experiment.models)):
        for grid in grids:
            table.add_row(kind, Path(grid.name).stem, _values(grid.values))
    for policy in experiment.policies:
        rules = {} if policy.rules == ("paper",) else {"rules": policy.rules}
        table.add_row("policy", policy.label, _values({**policy.values, **rules}))
        if policy.best:
            table.add_row("", policy.best, f"the best of '{policy.label}' in each configuration")
    return table


def _values(values: Any) -> str:
    return "; ".join(f"{key} {', '.join(map(str, of))}" for key, of in values.items())


def _print_results(table: pa.Table, title: str) -> None:
    """Print the token hit rates by trace and label."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    frame = table.select(["trace", "synthetic", "label", "token_hit_rate"]).to_pandas()
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title=title, title_justify="left")
    shown.add_column("trace")
    shown.add_column("policy")
    for column in ("runs", "token hit rate\nlowest", "\nmean", "\nhighest"):
        shown.add_column(column, justify="right")
    for (trace, synthetic, label), rates in frame.groupby(
        ["trace", "synthetic", "label"], sort=False
    )["token_hit_rate"]:
        shown.add_row(
            f"{trace} SYNTHETIC" if synthetic else trace,
            label,
            f"{len(rates):,}",
            f"{rates.min():.2%}",
            f"{rates.mean():.2%}",
            f"{rates.max():.2%}",
        )
    Console(highlight=False).print(shown)
