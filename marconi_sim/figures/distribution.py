"""How long the inputs and outputs of traces are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marconi_sim.figures.page import Page
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import trace_text
from marconi_sim.trace.load import Workload

NOTE = "Dots: medians."


def draw(page: Page, workloads: Sequence[Workload]) -> None:
    """Draw the share of requests up to each length, one panel per trace."""
    styles = looks(("input", "output"))
    for axes, workload in zip(page.panels, workloads, strict=True):
        trace, order = workload.trace, workload.order
        for label, lengths in (
            ("input", trace.input_tokens[order]),
            ("output", trace.output_tokens[order]),
        ):
            values = np.sort(np.maximum(lengths, 1))  # no zeros on a logarithmic axis
            share = 100 * np.arange(1, values.size + 1) / values.size
            look = styles[label]
            axes.step(
                values, share, where="post", color=look.colour, linestyle=look.line, label=label
            )
            axes.plot(
                [np.median(values)],
                [50],
                color=look.colour,
                marker="o",
                markersize=5,
                clip_on=False,
            )
        axes.set_xscale("log")
        axes.set_xlim(10, 200_000 if trace.input_tokens[order].max() > 40_000 else 40_000)
        axes.set_xticks(*_ticks(axes.get_xlim()))
        axes.set_ylim(0, 100)
        synthetic = workload.recipe.synthetic if workload.recipe else False
        axes.set_title(trace_text(workload.name, synthetic, " "))
        axes.set_xlabel("tokens of a request")
    page.panels[0].set_ylabel("requests up to this length, %")
    page.legend()


def _ticks(limits: tuple[float, float]) -> tuple[list[int], list[str]]:
    places = [n for n in (10, 100, 1000, 10_000, 100_000) if limits[0] <= n <= limits[1]]
    return places, [f"{n // 1000}K" if n >= 1000 else str(n) for n in places]
