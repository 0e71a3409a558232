"""Cumulative distributions over the requests of one run per series."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.columns import TTFT
from marconi_sim.base.errors import UserError
from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import y_quantity


def run_of(rows: Rows, figure: Figure, label: str) -> str:
    """Return the only run of a label.

    Raises:
        UserError: there are several.
    """
    runs = list(dict.fromkeys(rows.frame.run[rows.frame.label == label]))
    if len(runs) != 1:
        raise UserError(
            f"{rows.experiment.path}: figure '{figure.name}' of kind '{figure.kind}' needs one run of '{label}',"
            f" there are {len(runs)}; use one configuration, or the kind box"
        )
    return str(runs[0])


def _values(rows: Rows, figure: Figure, run: str) -> NDArray[np.float64]:
    if figure.y == TTFT:
        return rows.times(run, figure.latency)
    requests = rows.requests(run, "input_tokens", "reused_tokens")
    return (requests.reused_tokens / requests.input_tokens).to_numpy()


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw the share of requests up to each value."""
    (axes,) = page.panels
    y = y_quantity(figure)
    for label, look in looks(figure.series).items():
        values = np.sort(y.factor * _values(rows, figure, run_of(rows, figure, label)))
        share = 100 * np.arange(1, values.size + 1) / values.size
        axes.step(
            values, share, where="post", label=label, markevery=0.11, markersize=5, **look.of_line()
        )
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    axes.set_xlabel(y.label())
    axes.set_ylabel("requests up to this, %")
    page.legend()
