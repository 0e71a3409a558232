"""A picture of a trace: how long its inputs and outputs are (figure 6 of the paper)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError
from marconi_sim.base.files import check_writable, whole_file
from marconi_sim.trace.description.describe import Description, heading
from marconi_sim.trace.load import Workload

ENDINGS = (".png", ".pdf", ".svg")
# Okabe and Ito's palette: told apart by people with any common colour blindness, and in grey.
_INPUT = ("#0072B2", "-")
_OUTPUT = ("#D55E00", "--")
_FOOT = 110  # characters a line


def check_plot_path(path: Path) -> None:
    """Raise early if a picture could not be written to `path`.

    Raises:
        UsageError: an ending that is none of `ENDINGS`.
        UserError: the folder does not exist or cannot be written.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: cannot draw '{path.suffix}'; use one of: {', '.join(ENDINGS)}")
    check_writable(path)


def _cumulative(lengths: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (length, share of requests up to it); no length below 1, for the logarithmic axis."""
    values, counts = np.unique(np.maximum(lengths, 1), return_counts=True)
    return values.astype(np.int64), np.cumsum(counts) / lengths.size


def plot_lengths(workload: Workload, description: Description, path: Path) -> None:
    """Draw the cumulative distributions of input and output lengths, with the trace's provenance.

    Raises:
        UsageError, UserError: as `check_plot_path`.
    """
    check_plot_path(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, PercentFormatter

    trace, rows = workload.trace, workload.order
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, lengths, (color, line) in (
        ("input", trace.input_tokens[rows], _INPUT),
        ("output", trace.output_tokens[rows], _OUTPUT),
    ):
        values, share = _cumulative(lengths)
        median = np.percentile(lengths, 50, method="inverted_cdf")
        axes.step(
            np.concatenate([values[:1], values]),
            np.concatenate([[0.0], share]),
            where="post",
            linewidth=2,
            label=f"{name}, median {int(median):,} tokens",
            color=color,
            linestyle=line,
        )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.01)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("tokens of a request (logarithmic)")
    axes.set_ylabel("requests up to this length")
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best", frameon=False)
    axes.set_title(
        textwrap.fill(heading(description), 60), fontsize=12, fontweight="bold", loc="left"
    )
    foot = f"{description.requests:,} requests, {description.sessions:,} sessions."
    for name, fact in (("Source", description.source), ("Tokenizer", description.tokenizer)):
        foot += f" {name}: {fact}." if fact else ""
    figure.supxlabel(textwrap.fill(foot, _FOOT), fontsize=7, x=0.01, ha="left")
    # No date and fixed ids, so that the same trace gives the same bytes.
    metadata = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    ending = path.suffix.lower()
    with whole_file(path) as temporary, mpl.rc_context({"svg.hashsalt": "marconi-sim"}):
        figure.savefig(temporary, format=ending[1:], dpi=150, metadata=metadata[ending])
