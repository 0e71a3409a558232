"""Boxes: how a value spreads over configurations."""

from __future__ import annotations

import numpy as np

from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows, rows_of
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import quantity, x_text, y_quantity

NOTE = "Boxes: quartiles over configurations, line: median, diamond: mean, whiskers: P5 and P95, dots: beyond."


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw one group of boxes per x, one box per series."""
    from matplotlib.patches import Patch

    (axes,) = page.panels
    frame = rows_of(rows, figure)
    y = y_quantity(figure)
    texts = frame.apply(lambda row: x_text(figure.x, row), axis=1)
    groups = list(dict.fromkeys(texts))
    styles = looks(figure.series)
    width = 0.8 / len(figure.series)
    handles = []
    for i, label in enumerate(figure.series):
        of_label = frame.label == label
        values = [
            y.factor * frame.value[of_label & (texts == group)].dropna().to_numpy()
            for group in groups
        ]
        places = np.arange(len(groups)) + (i - (len(figure.series) - 1) / 2) * width
        parts = axes.boxplot(
            values,
            positions=places,
            widths=0.8 * width,
            whis=(5, 95),
            showmeans=True,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": "black", "linewidth": 1.8},
            meanprops={
                "marker": "D",
                "markerfacecolor": "white",
                "markeredgecolor": "black",
                "markersize": 5,
            },
            flierprops={"marker": ".", "markersize": 4, "markeredgecolor": styles[label].colour},
        )
        for box in parts["boxes"]:
            box.set(facecolor=styles[label].colour, hatch=styles[label].hatch, alpha=0.85)
        handles.append(
            Patch(
                facecolor=styles[label].colour,
                hatch=styles[label].hatch,
                edgecolor="black",
                alpha=0.85,
                label=label,
            )
        )
    if figure.over:
        axes.axhline(float(figure.relation == "times"), color="black", linewidth=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(y.label())
    if figure.x != "trace":
        axes.set_xlabel(quantity(figure.x).label())
    page.legend(handles=handles)
