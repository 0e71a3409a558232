"""A picture of predicted against measured TTFT, and of what each policy made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from marconi_sim.figures.page import page
from marconi_sim.figures.style import GREY, looks
from marconi_sim.validation.ttft import Fit

_BAND = 0.25  # of the prediction, either way
_UNFILLED = ("", "x")  # markers that cannot be filled
_NAME = "ttft"


def plot_validation(
    rows: pd.DataFrame, fit: Fit, title: str, foot: Sequence[str], folder: Path
) -> list[Path]:
    """Draw measured over predicted TTFT and the distributions by policy into FOLDER/ttft.pdf and .png; return both.

    Args:
        rows: of all policies, with predictions.
        fit: the latency model that made the predictions of the wall clock.
        title: of the figure.
        foot: paragraphs below it.
        folder: where it goes.

    Raises:
        UserError: it cannot be written.
    """
    policies = list(dict.fromkeys(rows.policy))
    style = looks(policies)
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    with page(title, foot, 2, share_y=False) as figure:
        left, right = figure.panels
        for policy in policies:
            its = rows[rows.policy == policy]
            look = style[policy]
            marker = look.marker if look.marker not in _UNFILLED else "s"
            for held_out in (False, True):
                some = its[its.held_out == held_out]
                left.plot(
                    1e3 * some.predicted_ttft, 1e3 * some.ttft, marker, linestyle="none",
                    color=look.colour, markersize=4.5, alpha=0.75,
                    markerfacecolor=look.colour if held_out else "none",
                    label=policy if held_out else None,
                )  # fmt: skip
            seconds = np.sort(its.ttft.to_numpy())
            share = 100 * np.arange(1, seconds.size + 1) / seconds.size
            right.step(
                1e3 * seconds, share, look.line, where="post", color=look.colour, label=policy
            )
        both = 1e3 * np.r_[rows.predicted_ttft.to_numpy(), rows.ttft.to_numpy()]
        ends = np.array([both.min() / 1.3, both.max() * 1.3])
        left.plot(ends, ends, color=GREY, linewidth=1)
        left.fill_between(
            ends, ends * (1 - _BAND), ends * (1 + _BAND), color=GREY, alpha=0.12, linewidth=0
        )
        left.set(
            xscale="log", yscale="log", xlim=ends, ylim=ends,
            xlabel="predicted TTFT (ms)", ylabel="measured TTFT (ms)",
            title=f"Held-out requests (filled): median error {fit.median_error:.1%}, P95 {fit.p95_error:.1%}",
        )  # fmt: skip
        left.annotate(
            f"band: ±{_BAND:.0%}", (0.97, 0.04), xycoords="axes fraction", ha="right", color=GREY, fontsize=9
        )  # fmt: skip
        right.set(
            xscale="log", ylim=(0, 101), xlabel="measured TTFT (ms)", ylabel="requests (%)",
            title="Requests answered within a TTFT",
        )  # fmt: skip
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        figure.legend(handles=left.get_legend_handles_labels()[0])
        return figure.write(folder, _NAME)
