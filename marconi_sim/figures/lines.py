"""Lines: a value against a number, one panel per trace."""

from __future__ import annotations

import numpy as np

from marconi_sim.base.errors import UserError
from marconi_sim.figures.page import COLUMNS, Page
from marconi_sim.figures.rows import Rows, rows_of
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import quantity, trace_text, x_number, y_quantity

_LOGARITHMIC = 8  # times the smallest x is the largest
_DECADES = 1000  # likewise


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw a line per series; where several runs share an x, their mean, and a band from lowest to highest."""
    frame = rows_of(rows, figure)
    x, y = quantity(figure.x), y_quantity(figure)
    try:
        frame["x"] = [x_number(figure.x, value) for value in frame[figure.x]]
    except ValueError as error:
        raise UserError(
            f"{rows.experiment.path}: figure '{figure.name}': x = '{figure.x}' is not a number in every run;"
            " use the kind bars or box"
        ) from error
    frame["y"] = y.factor * frame.value
    styles = looks(figure.series)
    names = frame.drop_duplicates("trace")
    for axes, name, synthetic in zip(page.panels, names.trace, names.synthetic, strict=True):
        of_trace = frame[(frame.trace == name) & np.isfinite(frame.y)]
        for label in figure.series:
            found = of_trace[of_trace.label == label].groupby("x").y.agg(["mean", "min", "max"])
            look = styles[label]
            axes.plot(found.index, found["mean"], label=label, **look.of_line())
            if (found["max"] > found["min"]).any():
                axes.fill_between(
                    found.index,
                    found["min"],
                    found["max"],
                    color=look.colour,
                    alpha=0.15,
                    linewidth=0,
                )
        ticks = np.unique(of_trace.x)
        if ticks[0] > 0 and ticks[-1] >= _LOGARITHMIC * ticks[0]:
            axes.set_xscale("log")
            ticks = _spread(ticks)
        axes.set_xticks(ticks, [f"{tick:,.0f}" if tick >= 1000 else f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        if figure.over:
            axes.axhline(float(figure.relation == "times"), color="black", linewidth=1)
        axes.set_xlabel(x.label())
        if len(page.panels) > 1 or synthetic:
            axes.set_title(trace_text(str(name), bool(synthetic), " "))
    if not figure.over and y.unit == "%":
        # When all is drawn: panels share the axis, and setting one end fixes the other.
        page.panels[0].set_ylim(bottom=0)
    for axes in page.panels[::COLUMNS]:
        axes.set_ylabel(y.label())
    page.legend(4 if len(page.panels) == 1 else 6)


def _spread(ticks: np.ndarray) -> np.ndarray:
    """Return the ticks that have room on a logarithmic axis; of one over many decades, the decades."""
    if ticks[-1] >= _DECADES * ticks[0]:
        first, last = np.ceil(np.log10(ticks[0])), np.floor(np.log10(ticks[-1]))
        decades: np.ndarray = 10.0 ** np.arange(first, last + 1)
        return decades
    kept = [ticks[0]]
    room = (ticks[-1] / ticks[0]) ** (1 / 9)
    for tick in ticks[1:]:
        if tick >= kept[-1] * min(room, 1.9):
            kept.append(tick)
    return np.array(kept)
