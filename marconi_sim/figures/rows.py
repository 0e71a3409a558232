"""The rows of a sweep that a figure shows, with its y computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marconi_sim.base.columns import TTFT
from marconi_sim.base.errors import UserError
from marconi_sim.figures.spec import Figure
from marconi_sim.latency.table import load_latency
from marconi_sim.sweeps.experiment import Experiment
from marconi_sim.sweeps.file import sweep_facts
from marconi_sim.sweeps.plan import Plan
from marconi_sim.sweeps.run import Swept


@dataclass(frozen=True)
class Rows:
    """A finished sweep, ready to be drawn.

    Attributes:
        frame: one row per run.
        facts: what its file says about itself.
        requests_dir: where its requests are, if it has some.
        plan: what it ran.
    """

    frame: pd.DataFrame
    facts: dict[str, Any]
    requests_dir: Path | None
    plan: Plan

    @classmethod
    def of(cls, swept: Swept, plan: Plan, requests_dir: Path | None) -> Rows:
        """Return the rows of a sweep."""
        return cls(swept.table.to_pandas(), sweep_facts(swept.table), requests_dir, plan)

    @property
    def experiment(self) -> Experiment:
        """What asked for the sweep."""
        return self.plan.experiment

    def requests(self, run: str, *columns: str) -> pd.DataFrame:
        """Return columns of the requests of a run, in processing order."""
        assert self.requests_dir is not None
        path = self.requests_dir / f"{run}.parquet"
        requests: pd.DataFrame = pq.read_table(path, columns=list(columns)).to_pandas()
        return requests

    def times(self, run: str, form: str) -> NDArray[np.float64]:
        """Return the time to the first token of each request of a run, in seconds."""
        requests = self.requests(run, "input_tokens", "reused_tokens")
        left = (requests.input_tokens - requests.reused_tokens).to_numpy()
        return load_latency().seconds_of(left, form)


def related(value: Any, other: Any, relation: str) -> Any:
    """Return a value relative to another: one of `spec.RELATIONS`."""
    if relation == "difference":
        return value - other
    with np.errstate(divide="ignore", invalid="ignore"):
        return value / other - (relation == "percent")


def shown_rows(rows: Rows, figure: Figure) -> pd.DataFrame:
    """Return the rows of a figure's series, of the label they are relative to, and of its capacity.

    Raises:
        UserError: no run has this capacity.
    """
    frame = rows.frame
    frame = frame[frame.label.isin([*figure.series, figure.over])]
    if figure.capacity:
        found = list(dict.fromkeys(frame.capacity))
        if figure.capacity not in found:
            raise UserError(
                f"{rows.experiment.path}: figure '{figure.name}': capacity = '{figure.capacity}':"
                f" no run has it; there are {', '.join(found)}"
            )
        frame = frame[frame.capacity == figure.capacity]
    return frame.copy()


def _y(rows: Rows, frame: pd.DataFrame, figure: Figure) -> pd.Series[float]:
    if figure.y != TTFT:
        return frame[figure.y].astype(float)
    percentile = 50.0 if figure.percentile is None else figure.percentile
    found = {
        run: np.percentile(rows.times(run, figure.latency), percentile) for run in set(frame.run)
    }
    return frame.run.map(found)


def rows_of(rows: Rows, figure: Figure) -> pd.DataFrame:
    """Return the rows of a figure's series with a column `value`: y, or y relative to `over`."""
    shown = shown_rows(rows, figure)
    shown["value"] = _y(rows, shown, figure)
    if figure.over:
        base = shown[shown.label == figure.over].groupby("configuration").value.first()
        other = shown.configuration.map(base)
        shown["value"] = related(shown.value, other, figure.relation)
    found: pd.DataFrame = shown[shown.label.isin(figure.series)]
    return found
