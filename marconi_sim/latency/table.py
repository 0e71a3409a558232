"""Latency tables: the time to the first token of prompts of different lengths, measured once by somebody.

A table is a CSV file beside this module, `prompt_tokens,ttft_ms`, with its facts as `# key: text` lines on top. The
time to the first token of a request is read off at the number of tokens that are left to prefill after reuse, as the
paper does. That leaves out the queue, loading the states, and the new tokens' attention to the reused prefix, so it
favours caches a little, the more the longer the prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marconi_sim.latency import DEFAULT_TABLE, FORMS

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class LatencyTable:
    """A measured latency table.

    Attributes:
        name: the stem of its file.
        title: model and hardware.
        source: where it was published.
        tokens: float64 (points,). Prompt lengths, ascending.
        seconds: float64 (points,). Time to the first token.
    """

    name: str
    title: str
    source: str
    tokens: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def line(self) -> tuple[float, float]:
        """Return (seconds at no token, seconds per token) of the least-squares line through all points."""
        slope, start = np.polyfit(self.tokens, self.seconds, 1)
        return float(start), float(slope)

    def seconds_of(self, tokens: ArrayLike, form: str = FORMS[0]) -> NDArray[np.float64]:
        """Return the times to the first token of prefills of these lengths.

        Args:
            tokens: lengths, at least 0.
            form: `linear`: the line through all points, which evens out noise and the slow first measurements.
                `interpolated`: between the points, where a length counts as no slower than any longer one (so that the
                first measurements, which warmed the machine up, do not count); constant below the first point, and with
                the line's slope beyond the last.

        Raises:
            ValueError: an unknown form.
        """
        length = np.asarray(tokens, np.float64)
        start, slope = self.line()
        line: NDArray[np.float64] = start + slope * length
        if form == "linear":
            return line
        if form != "interpolated":
            raise ValueError(f"form {form!r}: allowed: {', '.join(FORMS)}")
        monotone = np.minimum.accumulate(self.seconds[::-1])[::-1]
        beyond = slope * np.maximum(length - self.tokens[-1], 0.0)
        between: NDArray[np.float64] = np.interp(length, self.tokens, monotone) + beyond
        return between


def load_latency(name: str = DEFAULT_TABLE) -> LatencyTable:
    """Return a shipped table."""
    path = _FOLDER / f"{name}.csv"
    lines = path.read_text("utf-8").splitlines()
    facts = dict(line[1:].strip().split(": ", 1) for line in lines if line.startswith("#"))
    rows = [line.split(",") for line in lines if line[:1].isdigit()]
    tokens, milliseconds = np.array(rows, np.float64).T
    return LatencyTable(name, facts["title"], facts["source"], tokens, milliseconds / 1000)
