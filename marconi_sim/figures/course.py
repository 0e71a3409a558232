"""How a hit rate develops in the course of a trace: its requests in slices, one run per series."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.figures.cdf import run_of
from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows
from marconi_sim.figures.spec import Figure
from marconi_sim.figures.style import GREY, looks

SLICES = 20


def rates_by_slice(rows: Rows, figure: Figure, label: str) -> NDArray[np.float64]:
    """Return the token hit rate of each of 20 slices of the requests, as equal as can be."""
    requests = rows.requests(run_of(rows, figure, label), "input_tokens", "reused_tokens")
    ends = np.arange(1, SLICES + 1) * len(requests) // SLICES
    totals = requests.cumsum().iloc[ends - 1].to_numpy()
    of_slices = np.diff(totals, axis=0, prepend=0)
    rates: NDArray[np.float64] = of_slices[:, 1] / of_slices[:, 0]
    return rates


def draw(page: Page, rows: Rows, figure: Figure) -> None:
    """Draw a line per series, and where a policy that tunes itself did so."""
    (axes,) = page.panels
    requests = int(rows.frame.requests.iloc[0])
    middles = (np.arange(SLICES) + 0.5) / SLICES * requests
    for label, look in looks(figure.series).items():
        axes.plot(middles, 100 * rates_by_slice(rows, figure, label), label=label, **look.of_line())
    tuned = rows.frame[rows.frame.label.isin(figure.series)]
    if "tuned_alpha" in tuned:
        for row in tuned[tuned.tuned_alpha.notna()].to_dict("records"):
            at = int(row["first_eviction_request"]) * int(row["param_multiplier"])
            axes.axvline(at, color=GREY, linewidth=1, linestyle=":")
            axes.annotate(
                f"{row['label']} adopts\nalpha = {row['tuned_alpha']:g}", (at, axes.get_ylim()[1]), (4, 0),
                textcoords="offset points", va="top", fontsize=9, color=GREY,
            )  # fmt: skip
    axes.set_xlim(0, requests)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"requests in processing order (each point: a {SLICES}th of them)")
    axes.set_ylabel("token hit rate, %")
    page.legend(5)
