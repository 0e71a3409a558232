"""`marconi-sim paper`."""

from __future__ import annotations

from pathlib import Path

import click

from marconi_sim.cli.options import (
    catalogue_option,
    figures_folder_option,
    jobs_option,
    json_option,
    path_option,
)
from marconi_sim.cli.output import policies_at_work, print_json


@click.command("paper")
@figures_folder_option("The folder of `marconi-sim figures`: results are in FOLDER/data.")
@path_option(
    "--into",
    help="Put the table between <!-- paper --> and <!-- /paper --> of this Markdown file instead of printing it.",
)
@jobs_option
@catalogue_option
@json_option
def paper_command(
    folder: Path,
    into: Path | None,
    jobs: int | None,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print every number of the Marconi paper beside ours, and why they differ.

    Runs what is missing in FOLDER/data, and prints Markdown.
    """
    from marconi_sim.base.errors import UsageError

    if as_json and into is not None:
        raise UsageError("--json: has no effect with --into, which writes Markdown; leave one out")
    from marconi_sim.base.files import check_folder, check_writable
    from marconi_sim.paper.table import markdown, measured, write_into

    if into is not None:
        check_writable(into)
    check_folder(folder)
    with policies_at_work():
        filled = measured(folder, jobs, search)
    if as_json:
        print_json([x._asdict() for x in filled])
    elif into is not None:
        write_into(into, markdown(filled))
        click.echo(f"{len(filled)} rows in {into}")
    else:
        click.echo(markdown(filled), nl=False)
