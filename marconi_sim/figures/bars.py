"""Bars: a value in a few settings."""

from __future__ import annotations

import numpy as np

from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows, rows_of
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import quantity, x_text, y_quantity


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".removesuffix(".")


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw a group of bars per x, a bar per series with its value on top: the mean where several runs share it."""
    (axes,) = page.panels
    frame = rows_of(rows, figure)
    y = y_quantity(figure)
    texts = frame.apply(lambda row: x_text(figure.x, row), axis=1)
    groups = list(dict.fromkeys(texts))
    styles = looks(figure.series)
    width = 0.84 / len(figure.series)
    for i, label in enumerate(figure.series):
        of_label = frame.label == label
        heights = [y.factor * frame.value[of_label & (texts == group)].mean() for group in groups]
        places = np.arange(len(groups)) + (i - (len(figure.series) - 1) / 2) * width
        bars = axes.bar(
            places, heights, 0.92 * width, label=label, color=styles[label].colour,
            hatch=styles[label].hatch, edgecolor="white", linewidth=0,
        )  # fmt: skip
        axes.bar_label(bars, [_three_digits(height) for height in heights], fontsize=8, padding=2)
    if figure.over:
        axes.axhline(float(figure.relation == "times"), color="black", linewidth=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.1)
    axes.set_xlabel("" if figure.x == "trace" else quantity(figure.x).label())
    axes.set_ylabel(y.label())
    page.legend()
