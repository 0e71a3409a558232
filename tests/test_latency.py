"""The shipped latency table: the published facts, and how they are read."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from marconi_sim.latency import FORMS
from marconi_sim.latency.table import load_latency


def test_the_line_is_the_papers_fit() -> None:
    start, slope = load_latency().line()
    assert start == pytest.approx(0.0178, abs=5e-5)
    assert slope == pytest.approx(0.0530e-3, abs=5e-8)


def test_the_linear_form_is_the_line() -> None:
    table = load_latency()
    start, slope = table.line()
    assert table.seconds_of([0, 1000]) == pytest.approx([start, start + 1000 * slope])


def test_interpolation_goes_through_the_points_and_between_them() -> None:
    seconds = load_latency().seconds_of([1000, 1025, 1050], "interpolated")
    assert seconds[0] == pytest.approx(0.071156)
    assert seconds[0] < seconds[1] < seconds[2]
    assert seconds[1] == pytest.approx((seconds[0] + seconds[2]) / 2)


def test_interpolation_ignores_the_warm_up_and_never_falls() -> None:
    table = load_latency()
    seconds = table.seconds_of(np.arange(0, 40_000, 7), "interpolated")
    assert (np.diff(seconds) >= 0).all()
    assert seconds[0] == table.seconds[table.tokens >= 150].min()


def test_beyond_the_last_point_interpolation_goes_on_with_the_lines_slope() -> None:
    table = load_latency()
    last = float(table.tokens[-1])
    near, far = table.seconds_of([last, last + 10_000], "interpolated")
    assert far - near == pytest.approx(10_000 * table.line()[1])


@pytest.mark.parametrize("form", FORMS)
def test_times_are_positive_and_of_the_arguments_shape(form: str) -> None:
    seconds = load_latency().seconds_of(np.zeros((2, 3)), form)
    assert seconds.shape == (2, 3)
    assert (seconds > 0).all()


def test_an_unknown_form_is_told() -> None:
    with pytest.raises(ValueError, match="'cubic': allowed: linear, interpolated"):
        load_latency().seconds_of([1], "cubic")


def test_the_table_says_where_it_is_from() -> None:
    table = load_latency()
    assert "Jamba-1.5-Mini" in table.title
    assert "2411.19379" in table.source


def test_the_points_are_the_published_ones(shared: Path) -> None:
    with (shared / "data" / "ttft_jamba_1_5_mini.csv").open() as file:
        rows = [
            (float(row["prompt_tokens"]), float(row["ttft_ms"])) for row in csv.DictReader(file)
        ]
    table = load_latency()
    assert table.tokens.tolist() == [tokens for tokens, _ in rows]
    assert (1000 * table.seconds).tolist() == pytest.approx([time for _, time in rows])
