"""One look for all figures: Okabe and Ito's colours, and a marker, a line and a hatch each, so that none is needed.

Colours can be told apart with any common colour blindness; markers, lines and hatches in grey and in print.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple

WIDTH = 7.0  # inches of a figure with one panel: a page's text, or three quarters of a slide
WIDE = 10.0
HEIGHT = 4.6  # with title, legend and foot
ROW = 2.4  # of another row of panels
TITLE_SIZE = 12.0
FOOT_SIZE = 7.0
GREY = "#444444"
SETTINGS: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "marconi-sim",
}


class Look(NamedTuple):
    """How a series is drawn."""

    colour: str
    marker: str
    line: str
    hatch: str
    hollow: bool = False  # for what often lies on another line: its markers hide nothing

    def of_line(self) -> dict[str, Any]:
        """Return how matplotlib draws it as a line."""
        face = "none" if self.hollow else self.colour
        return {
            "color": self.colour, "marker": self.marker, "linestyle": self.line, "markerfacecolor": face
        }  # fmt: skip


# What a reader meets in several figures looks the same in all of them.
_KNOWN = {
    "vanilla": Look("#999999", "x", ":", ""),
    "vllm+": Look("#D55E00", "s", "-", "//"),
    "sglang+": Look("#009E73", "^", "-", "\\\\"),
    "marconi": Look("#0072B2", "o", "-", ""),
    "best static alpha": Look("#E69F00", "D", "--", "xx", hollow=True),
    "alpha 0": Look("#CC79A7", "v", "-.", ".."),
    "alpha 0.9": Look("#56B4E9", "P", "-.", "--"),
    "alpha 1": Look("#D55E00", "X", ":", "++"),
    "unbounded": Look("#444444", "", "--", ""),
    "ceiling": Look("#444444", "", ":", ""),
    "attention": Look("#D55E00", "s", "-", "//"),
    "ssm": Look("#0072B2", "o", "-", ""),
    "mlp": Look("#56B4E9", "^", "-", ".."),
    "input": Look("#0072B2", "", "-", ""),
    "output": Look("#D55E00", "", "--", ""),
    "KV": Look("#56B4E9", "s", "-", ""),
    "state": Look("#D55E00", "o", "-", "//"),
}
_OTHERS = (
    Look("#0072B2", "o", "-", ""),
    Look("#D55E00", "s", "--", "//"),
    Look("#009E73", "^", "-.", "\\\\"),
    Look("#E69F00", "D", ":", "xx"),
    Look("#CC79A7", "v", "-", ".."),
    Look("#56B4E9", "P", "--", "--"),
    Look("#000000", "X", "-.", "++"),
)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return how each series is drawn: always the same for well-known ones, the others as differently as can be."""
    labels = list(labels)
    taken = {_KNOWN[label].colour for label in labels if label in _KNOWN}
    free = [look for look in _OTHERS if look.colour not in taken]
    others = cycle(free or _OTHERS)
    return {label: _KNOWN.get(label) or next(others) for label in labels}
