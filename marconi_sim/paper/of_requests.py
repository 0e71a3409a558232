"""Our numbers for figure 10, which looks at the requests of one trace."""

from __future__ import annotations

import numpy as np

from marconi_sim.figures.cdf import run_of
from marconi_sim.figures.lengths import means_by_length
from marconi_sim.figures.rows import Rows
from marconi_sim.figures.spec import figures_of
from marconi_sim.paper.of_sweeps import BEST, MARCONI, by_label
from marconi_sim.paper.text import change, milliseconds, percent, points

_SPLIT = 7_000  # tokens: below it marconi loses and above it wins, says the paper


def by_length(rows: Rows) -> dict[str, str]:
    """Figure 10a: hit rate by input length, marconi minus sglang+; FLOPs saved; both hit rates."""
    figure = next(f for f in figures_of(rows.experiment) if f.kind == "lengths")
    base = means_by_length(rows, figure, figure.over)
    found = {}
    for label in (MARCONI, BEST):
        gain = means_by_length(rows, figure, label) - base
        found[label] = (gain[gain.index < _SPLIT].min(), gain[gain.index >= _SPLIT].max())
    low, high = (
        f"{points(found[MARCONI][i])} (best alpha {points(found[BEST][i])})" for i in (0, 1)
    )
    flops = by_label(rows.frame, "flops_saved").iloc[0]
    rates = by_label(rows.frame).iloc[0]
    return {
        "short": low,
        "long": high,
        "flops": change(flops[MARCONI] / flops["sglang+"] - 1),
        "rates": f"{percent(rates[MARCONI])} against {percent(rates['sglang+'])}",
    }


def first_token_distribution(rows: Rows) -> dict[str, str]:
    """Figure 10b: percentiles of the time to the first token, marconi against sglang+."""
    figure = next(f for f in figures_of(rows.experiment) if f.kind == "cdf")
    ours, base = (
        np.percentile(rows.times(run_of(rows, figure, label), "linear"), (5, 50, 95))
        for label in (MARCONI, "sglang+")
    )
    return {
        f"P{p}": f"{change(a / b - 1)} ({milliseconds(a - b)})"
        for p, a, b in zip((5, 50, 95), ours, base, strict=True)
    }
