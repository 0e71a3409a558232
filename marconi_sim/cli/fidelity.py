"""`marconi-sim fidelity`."""

from __future__ import annotations

from pathlib import Path

import click

from marconi_sim.base.errors import UsageError
from marconi_sim.cli.options import catalogue_option, path_option


@click.command("fidelity")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="NAME|FILE",
    help="A shipped trace, or a trace file. Repeatable. Default: all shipped traces that are not synthetic.",
)
@click.option(
    "--capacity",
    "capacities",
    multiple=True,
    metavar="BYTES",
    help="Of the cache: 60GB, 1.5GiB, 1500. Repeatable. Default: a quarter, a half and all of what the recipe says.",
)
@click.option(
    "--model", default="hybrid-7b", show_default=True, metavar="NAME|FILE", help="A model shape."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Threads [all cores].")
@path_option("--out", help="Write one row per replay (Parquet).")
@path_option("--figure", help="Draw the changes into a .png, .pdf or .svg file.")
@path_option(
    "--markdown",
    help="Put the tables into a page, between the marks <!-- fidelity --> and <!-- /fidelity -->.",
)
@catalogue_option
def fidelity_command(
    traces: tuple[str, ...],
    capacities: tuple[str, ...],
    model: str,
    jobs: int | None,
    out: Path | None,
    figure: Path | None,
    markdown: Path | None,
    search: tuple[str, ...],
) -> None:
    """Tell what each departure of the authors' published code from the paper is worth.

    Each departure is a switch. The paper's policies are replayed by the published code's rules, by these with one
    departure mended, by the paper's rules, and by these with one departure added.

    \b
      marconi-sim fidelity
      marconi-sim fidelity --trace taubench --capacity 5GB --capacity 10GB --out taubench.parquet
    """
    from marconi_sim.base.files import check_table
    from marconi_sim.base.progress import progress, status

    if len(set(traces)) < len(traces):
        raise UsageError(f"--trace {' '.join(traces)}: one is given twice")
    if out is not None:
        check_table(out)
    with status("loading"):
        import joblib

        from marconi_sim.fidelity.experiment import make_jobs, real_traces, run_jobs
        from marconi_sim.fidelity.plot import plot_effects
        from marconi_sim.fidelity.report import check_page, print_tables, write_page
        from marconi_sim.model import load_model
        from marconi_sim.simulation.result import write_rows
        from marconi_sim.trace.description.plot import check_plot_path
        from marconi_sim.trace.load import load_trace

        if figure is not None:
            check_plot_path(figure)
        if markdown is not None:
            check_page(markdown)
        workloads = [load_trace(name, search=search) for name in traces or real_traces(search)]
        todo = make_jobs(workloads, capacities)
    with progress("replaying (a policy's first run compiles it)", len(todo), "jobs") as advance:
        rows = run_jobs(workloads, todo, load_model(model), jobs or joblib.cpu_count(), advance)
    if out is not None:
        write_rows(rows, out)
    if figure is not None:
        plot_effects(rows, figure)
    if markdown is not None:
        write_page(markdown, rows)
    print_tables(rows, click.echo)
