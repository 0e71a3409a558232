"""A picture of what each departure is worth."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marconi_sim.base.files import whole_file
from marconi_sim.fidelity.experiment import Row
from marconi_sim.fidelity.report import changes, provenance, select
from marconi_sim.fidelity.switches import CASES, switches_of
from marconi_sim.trace.description.plot import check_plot_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart by people with any common colour blindness, and by their shapes.
_ADDED: dict[str, Any] = {"color": "#0072B2", "marker": "o"}
_MENDED: dict[str, Any] = {"color": "#D55E00", "marker": "D"}
_ALL: dict[str, Any] = {"color": "#000000", "marker": "s"}
_LINEAR = 0.1  # percentage points; beyond, the axis is logarithmic
_TICKS = (-30, -10, -3, -1, -0.3, 0, 0.3, 1, 3, 10, 30)
_FOOT = 200  # characters a line


def _mark(axes: Axes, y: float, values: Sequence[float], style: dict[str, Any]) -> None:
    """Draw changes as small marks, their range as a line, their mean as a large mark."""
    points = [100 * value for value in values]
    axes.plot([min(points), max(points)], [y, y], color=style["color"], linewidth=1, alpha=0.5)
    axes.plot(points, [y] * len(points), linestyle="none", markersize=3, alpha=0.35, **style)
    mean = sum(points) / len(points)
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    axes.plot([mean], [y], markersize=6.5, **edge, **style)


def _panel(axes: Axes, rows: Sequence[Row], case: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    def largest(name: str) -> float:
        both = (changes(rows, case, base, name, "token_hit_rate") for base in ("paper", "artifact"))
        return max(abs(value) for one in both for value in one)

    switches = sorted(switches_of(case), key=lambda switch: -largest(switch.name))
    paper = select(rows, case=case, base="paper", switch="")
    code = select(rows, case=case, base="artifact", switch="")
    pairs = zip(code, paper, strict=True)
    _mark(axes, 0, [a["token_hit_rate"] - b["token_hit_rate"] for a, b in pairs], _ALL)
    for y, switch in enumerate(switches, start=1):
        _mark(axes, y - 0.17, changes(rows, case, "paper", switch.name, "token_hit_rate"), _ADDED)
        _mark(
            axes, y + 0.17, changes(rows, case, "artifact", switch.name, "token_hit_rate"), _MENDED
        )  # fmt: skip
    axes.set_yticks(
        range(len(switches) + 1),
        ["all together", *(f"{one.name}  {one.rows}" for one in switches)],
        fontsize=8,
    )
    axes.set_ylim(len(switches) + 0.6, -0.6)
    axes.axhline(0.5, color="#999999", linewidth=0.6)
    axes.axvline(0, color="#666666", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=0.35)
    axes.set_xlim(-60, 60)
    axes.xaxis.set_major_locator(FixedLocator(list(_TICKS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+g}" if x else "0"))
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(case, fontsize=10, fontweight="bold", loc="left")


def plot_effects(rows: Sequence[Row], path: Path) -> None:
    """Draw the change of the token hit rate by every switch, for every trace and capacity.

    Raises:
        UsageError, UserError: as `check_plot_path`.
    """
    check_plot_path(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(12.5, 9.5), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [19, 11]
    panels = figure.subplots(2, 2, height_ratios=heights).ravel()
    for axes, case in zip(panels, CASES, strict=True):
        _panel(axes, rows, case)
    for axes in panels[2:]:
        axes.set_xlabel(
            f"change of token hit rate, percentage points (logarithmic beyond {_LINEAR})",
            fontsize=8.5,
        )
    handles = [
        Line2D([], [], linestyle="none", label=label, **style)
        for label, style in (
            ("published code instead of the paper", _ALL),
            ("paper's rules with this one departure", _ADDED),
            ("published code with this one mended", _MENDED),
        )
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.0, 0.978), ncols=3, frameon=False
    )
    count = len(select(rows, case=next(iter(CASES)), base="paper", switch=""))
    figure.suptitle(
        f"What each departure of the published code is worth ({count} traces and capacities;"
        " large marks: mean, lines: range)\n",  # the second line is the legend's place
        fontsize=12, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    figure.supxlabel(textwrap.fill(provenance(rows), _FOOT), fontsize=7, x=0.01, ha="left")
    # No date and fixed ids, so that the same results give the same bytes.
    metadata = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    ending = path.suffix.lower()
    with whole_file(path) as temporary, mpl.rc_context({"svg.hashsalt": "marconi-sim"}):
        figure.savefig(temporary, format=ending[1:], dpi=120, metadata=metadata[ending])
