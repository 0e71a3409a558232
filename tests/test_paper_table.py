"""The paper's numbers beside ours: complete, explained, and the shipped page up to date where that is cheap to tell."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from support import REPOSITORY

from marconi_sim.base.errors import UserError
from marconi_sim.figures.making import models_of, workloads_of
from marconi_sim.paper import of_models
from marconi_sim.paper.of_sweeps import by_label
from marconi_sim.paper.table import Line, lines, markdown, measured, write_into
from marconi_sim.paper.text import change, points
from marconi_sim.sweeps.experiment import load_experiment

FIGURES = (
    "3a",
    "3b",
    "5",
    "6",
    "7",
    "8",
    "9",
    "10a",
    "10b",
    "11",
    "12a",
    "12b",
    "13a",
    "13b",
    "14",
)
PAGE = REPOSITORY / "docs" / "paper.md"


def shipped() -> dict[tuple[str, str], list[str]]:
    """Return (figure, what) -> cells of the shipped page's rows; figure is empty in the second table."""
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    return {(c[0], c[1]) if len(c) == 5 else ("", c[0]): c for c in cells}


def test_every_figure_of_the_paper_has_rows() -> None:
    assert {line.figure for line in lines()} - {""} == set(FIGURES)


@pytest.mark.parametrize("line", lines(), ids=lambda line: f"{line.measure}-{line.key}")
def test_the_shipped_page_has_every_row_with_both_numbers_and_a_reason(line: Line) -> None:
    found = shipped()
    if line.paper:
        _, _, paper, ours, why = found[line.figure, line.what]
        assert (paper, why) == (line.paper, line.why)
        assert why
    else:
        _, ours, experiment = found["", line.what]
        assert experiment == line.experiment
    assert re.search(r"\d", ours)


def test_no_number_of_the_papers_facts_is_missing(shared: Path) -> None:
    table = (shared / "PAPER.md").read_text("utf-8").split("## Numbers to stand beside ours")[1]
    ours = dict.fromkeys(FIGURES, "")
    for line in lines():
        if line.figure:
            ours[line.figure] += f" {line.paper}"
    rows = [line.split("|")[1:4] for line in table.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == len(FIGURES)
    for figure, _, paper in rows:
        for number in re.findall(r"\d+\.\d+", paper):
            assert number in ours[figure.strip()], (figure, number)


def test_what_follows_from_shapes_and_lengths_is_as_the_page_says() -> None:
    found = {}
    for measure, name in (
        (of_models.bytes_of_sequence, "fig03b"),
        (of_models.flop_efficiency, "fig05"),
        (of_models.flops_by_layer, "fig14"),
    ):
        found[measure.__name__] = measure(models_of(load_experiment(name)))
    found["lengths"] = of_models.lengths(workloads_of(load_experiment("fig06"), ()))
    page = shipped()
    checked = [line for line in lines() if line.measure in found]
    assert len(checked) == 9
    for line in checked:
        assert page[line.figure, line.what][3] == found[line.measure][line.key]


@pytest.mark.slow
def test_the_shipped_page_is_what_the_command_prints(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    assert markdown(measured(folder)) in PAGE.read_text("utf-8")


def test_labels_with_several_runs_are_left_out() -> None:
    frame = pd.DataFrame(
        {
            "configuration": ["b", "b", "b", "a", "a", "a"],
            "label": ["x", "many", "many", "x", "many", "many"],
            "token_hit_rate": [0.5, 0.1, 0.2, 0.25, 0.3, 0.4],
        }
    )
    table = by_label(frame)
    assert list(table) == ["x"]
    assert table.x.to_dict() == {"b": 0.5, "a": 0.25}
    assert list(table.index) == ["b", "a"]


def test_the_table_goes_between_the_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- paper -->\nold\n<!-- /paper -->\nafter\n")
    write_into(page, "new\n")
    assert page.read_text() == "before\n<!-- paper -->\nnew\n<!-- /paper -->\nafter\n"
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(UserError, match="add the lines <!-- paper -->"):
        write_into(page, "new\n")
    assert page.read_text() == "nothing here\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "+12.3 %"), (-0.05, "-5.0 %"), (-0.0001, "0.0 %"), (1.5, "+150.0 %")],
)
def test_changes_have_a_sign_and_zero_has_none(value: float, text: str) -> None:
    assert change(value) == text


def test_points_have_a_sign_and_zero_has_none() -> None:
    assert [points(x) for x in (0.012, -0.012, 0.0)] == ["+1.2 points", "-1.2 points", "0.0 points"]
