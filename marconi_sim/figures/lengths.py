"""Which requests gain: a mean over requests of similar input length, one run per series."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marconi_sim.base.columns import TTFT
from marconi_sim.figures.cdf import run_of
from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows, related
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import y_quantity

_BINS = 16
_FEWEST = 5  # requests of a bin that is shown
NOTE = f"Bars: means over the requests whose inputs are that long; none where there are fewer than {_FEWEST}."
_ROUND = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)  # tokens: widths of bins


def bin_width(lengths: NDArray[np.int64]) -> int:
    """Return a round width that makes about 16 bins."""
    wanted = lengths.max() / _BINS
    return next((width for width in _ROUND if width >= wanted), _ROUND[-1])


def means_by_length(rows: Rows, figure: Figure, label: str) -> pd.Series[float]:
    """Return start of the bin, in tokens -> mean over its requests of y.

    The mean of token hit rates weighs every request the same, as in the paper. Bins with few requests are left out.
    """
    run = run_of(rows, figure, label)
    requests = rows.requests(run, "input_tokens", "reused_tokens")
    if figure.y == TTFT:
        requests["value"] = rows.times(run, figure.latency)
    else:
        requests["value"] = requests.reused_tokens / requests.input_tokens
    width = bin_width(requests.input_tokens.to_numpy())
    found = requests.groupby(requests.input_tokens // width * width).value.agg(["mean", "size"])
    means: pd.Series[float] = found["mean"][found["size"] >= _FEWEST]
    return means


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw a bar per bin and series."""
    (axes,) = page.panels
    y = y_quantity(figure)
    styles = looks(figure.series)
    base = means_by_length(rows, figure, figure.over) if figure.over else None
    for i, label in enumerate(figure.series):
        means = means_by_length(rows, figure, label)
        if base is not None:
            means = related(means, base, figure.relation)
        starts = means.index.to_numpy() / 1000
        step = float(np.min(np.diff(starts))) if starts.size > 1 else 1.0
        width = 0.84 * step / len(figure.series)
        axes.bar(
            starts + 0.08 * step + i * width, y.factor * means, 0.94 * width, align="edge", label=label,
            color=styles[label].colour, hatch=styles[label].hatch, edgecolor="white", linewidth=0,
        )  # fmt: skip
    if figure.over:
        axes.axhline(float(figure.relation == "times"), color="black", linewidth=1)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("input tokens of a request, thousands")
    axes.set_ylabel(y.label())
    page.legend()
