"""The table: every number of the paper, ours beside it, and why they differ."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file, whole_file
from marconi_sim.figures.making import models_of, run_experiment, workloads_of
from marconi_sim.figures.spec import FIGURE_KINDS, figures_of
from marconi_sim.paper import of_models, of_reasons, of_requests, of_sweeps
from marconi_sim.sweeps.experiment import load_experiment

NUMBERS = Path(__file__).parent / "numbers.toml"
_MARKS = re.compile(r"(<!-- paper -->\n).*?(<!-- /paper -->)", re.DOTALL)
_MEASURES: dict[str, Callable[[Any], dict[str, str]]] = {
    function.__name__: function
    for function in (
        of_models.block_reuse, of_models.bytes_of_sequence, of_models.flop_efficiency, of_models.flops_by_layer,
        of_models.lengths, of_sweeps.over_blocks, of_sweeps.over_recency, of_sweeps.first_token_times,
        of_sweeps.cache_size, of_sweeps.layers, of_sweeps.state_dimension, of_sweeps.session_rate,
        of_sweeps.response_time, of_requests.by_length, of_requests.first_token_distribution,
        of_reasons.what_eviction_could_win, of_reasons.contention, of_reasons.tuner_window,
    )
}  # fmt: skip


class Line(NamedTuple):
    """A row of the table.

    figure, paper, why: empty for a number that the paper does not have.
    ours: empty until it is computed.
    """

    figure: str
    what: str
    paper: str
    ours: str
    why: str
    experiment: str
    measure: str
    key: str


def lines() -> list[Line]:
    """Return the rows in `numbers.toml`, without our numbers."""
    found = []
    for group in tomllib.loads(NUMBERS.read_text("utf-8"))["figures"]:
        for row in group["rows"]:
            texts = (
                group.get("figure", ""),
                row["what"],
                row.get("paper", ""),
                "",
                row.get("why", ""),
            )
            found.append(Line(*texts, group["experiment"], group["measure"], row["key"]))
    return found


def _measure(
    name: str, experiment_name: str, folder: Path, jobs: int | None, search: tuple[str | Path, ...]
) -> dict[str, str]:
    experiment = load_experiment(experiment_name, search)
    drawn_of = {FIGURE_KINDS[figure.kind].of for figure in figures_of(experiment)}
    if drawn_of == {"models"}:
        return _MEASURES[name](models_of(experiment))
    if drawn_of == {"traces"}:
        return _MEASURES[name](workloads_of(experiment, search))
    return _MEASURES[name](run_experiment(experiment, folder, jobs, search))


def measured(
    folder: Path, jobs: int | None = None, search: Iterable[str | Path] = ()
) -> list[Line]:
    """Return the rows with our numbers; runs what is missing in FOLDER/data.

    Raises:
        UserError: a sweep fails, or a file cannot be used.
    """
    search = tuple(search)
    found: dict[tuple[str, str], dict[str, str]] = {}
    filled = []
    for line in lines():
        place = (line.measure, line.experiment)
        if place not in found:
            found[place] = _measure(*place, folder, jobs, search)
        filled.append(line._replace(ours=found[place][line.key]))
    return filled


def markdown(filled: Iterable[Line]) -> str:
    """Return the rows as two Markdown tables: the paper's numbers, and those that explain."""
    filled = list(filled)
    paper = ["| figure | what | paper | ours | why they differ |", "|---|---|---|---|---|"]
    paper += [
        f"| {x.figure} | {x.what} | {x.paper} | {x.ours} | {x.why} |" for x in filled if x.paper
    ]
    more = ["| what | measured | experiment |", "|---|---|---|"]
    more += [f"| {x.what} | {x.ours} | {x.experiment} |" for x in filled if not x.paper]
    return "\n".join([*paper, "", "Numbers that the paper does not have:", "", *more, ""])


def write_into(path: Path, text: str) -> None:
    """Put the tables between the marks `<!-- paper -->` and `<!-- /paper -->` of a file.

    Raises:
        UserError: the file cannot be read or written, or has no such marks.
    """
    before = readable_file(path, "document").read_text("utf-8")
    if not _MARKS.search(before):
        raise UserError(
            f"{path}: has no place for the table; add the lines <!-- paper --> and <!-- /paper -->"
        )
    with whole_file(path) as temporary:
        temporary.write_text(_MARKS.sub(lambda m: f"{m[1]}{text}{m[2]}", before), "utf-8")
