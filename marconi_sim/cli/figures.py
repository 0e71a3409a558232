"""`marconi-sim figures`."""

from __future__ import annotations

from pathlib import Path

import click

from marconi_sim.cli.options import (
    catalogue_option,
    figures_folder_option,
    jobs_option,
    json_option,
)
from marconi_sim.cli.output import policies_at_work, print_json


@click.command("figures")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@figures_folder_option("Where the images go, and what they are drawn from: FOLDER/data.")
@jobs_option
@catalogue_option
@json_option
def figures_command(
    names: tuple[str, ...],
    folder: Path,
    jobs: int | None,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw figures as PDF and PNG, after running the sweeps that they show.

    NAME is an experiment (all its figures) or one figure; without a NAME all are drawn. Finished runs in FOLDER/data
    are used again.

    \b
      marconi-sim figures
      marconi-sim figures fig11 fig10a -o images -j 2
    """
    from marconi_sim.base.progress import status

    with status("reading experiments"):
        from marconi_sim.figures.making import make_figures, wanted_figures

        wanted = wanted_figures(names, search)
    made = []
    with policies_at_work() as stdout:
        for one in make_figures(wanted, folder, jobs, search):
            made.append(one)
            if not as_json:
                click.echo(", ".join(map(str, one.files)), file=stdout)
    if as_json:
        found = [
            {"experiment": m.experiment, "figure": m.name, "files": [str(f) for f in m.files]}
            for m in made
        ]
        print_json(found)
