"""How columns are written on an axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from marconi_sim.figures.foot import SYNTHETIC
from marconi_sim.figures.spec import Figure
from marconi_sim.sweeps.runs import working_set_fraction


class Quantity(NamedTuple):
    """A column on an axis: its name, its unit, and what its values are multiplied with to have this unit."""

    name: str
    unit: str
    factor: float

    def label(self, more: str = "") -> str:
        """Return an axis label."""
        return f"{self.name}{more}" + (f", {self.unit}" if self.unit else "")


_KNOWN = {
    "token_hit_rate": Quantity("token hit rate", "%", 100),
    "request_hit_rate": Quantity("requests with a hit", "%", 100),
    "flops_saved": Quantity("FLOPs saved", "", 1),
    "ttft": Quantity("time to first token", "ms", 1000),
    "peak_bytes": Quantity("bytes held at most", "GB", 1e-9),
    "capacity_bytes": Quantity("cache capacity", "GB", 1e-9),
    "capacity": Quantity("cache", "% of the working set", 100),
    "sessions_per_second": Quantity("sessions per second", "", 1),
    "response_time": Quantity("response time", "s", 1),
    "tokens_per_state": Quantity("tokens of KV that one state costs", "", 1),
    "state_dimension": Quantity("state dimension", "", 1),
    "ssm_layers": Quantity("SSM : attention layers", "", 1),
}


def quantity(column: str) -> Quantity:
    """Return how a column is written."""
    return _KNOWN.get(column) or Quantity(column.removeprefix("param_").replace("_", " "), "", 1)


def y_quantity(figure: Figure) -> Quantity:
    """Return how a figure's y is written."""
    plain = quantity(figure.y)
    name = f"P{figure.percentile:g} {plain.name}" if figure.percentile is not None else plain.name
    if not figure.over:
        return plain._replace(name=name)
    if figure.relation == "times":
        return Quantity(f"{name},\ntimes that of {figure.over}", "", 1)
    if figure.relation == "percent":
        return Quantity(f"{name},\nchange from {figure.over}", "%", 100)
    unit = "points" if plain.unit == "%" else plain.unit
    return Quantity(f"{name},\nminus that of {figure.over}", unit, plain.factor)


def trace_text(trace: str, synthetic: bool, between: str = "\n") -> str:
    """Return a trace's name, marked if it is synthetic."""
    return f"{trace}{between}{SYNTHETIC}" if synthetic else trace


def x_number(column: str, value: Any) -> float:
    """Return a value on a numeric x axis."""
    if column == "capacity":
        fraction = working_set_fraction(str(value))
        if fraction is None:
            raise ValueError(value)
        return 100 * fraction
    return float(value) * quantity(column).factor


def x_text(column: str, row: pd.Series[Any]) -> str:
    """Return a value on an x axis of categories."""
    if column == "trace":
        return trace_text(row.trace, row.synthetic)
    if column == "ssm_layers":
        return f"{row.ssm_layers} : {row.attention_layers}"
    value = row[column]
    if isinstance(value, str):
        return value
    return f"{value * quantity(column).factor:g}"
