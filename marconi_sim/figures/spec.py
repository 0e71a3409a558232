"""The tables [[figures]] of an experiment, checked: what is drawn, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from marconi_sim.base.columns import METRICS, SETTINGS, TTFT
from marconi_sim.base.errors import UserError, did_you_mean
from marconi_sim.base.toml_document import Table
from marconi_sim.latency import FORMS
from marconi_sim.sweeps.experiment import Experiment


class FigureKind(NamedTuple):
    """A way to draw.

    of: what is drawn: the "runs" of a sweep, the "requests" of its runs, "traces" or "models".
    y: what y can be; empty if it cannot be chosen.
    has_x: whether x is to be chosen.
    relative: whether y can be relative to another label.
    """

    of: str
    y: tuple[str, ...] = ()
    has_x: bool = False
    relative: bool = False


_ANY = (*METRICS, TTFT)
_RATE = "token_hit_rate"
FIGURE_KINDS = {
    "box": FigureKind("runs", _ANY, True, True),  # the spread over configurations
    "lines": FigureKind("runs", _ANY, True, True),
    "bars": FigureKind("runs", _ANY, True, True),
    "cdf": FigureKind("requests", (_RATE, TTFT)),  # the distribution over requests
    "lengths": FigureKind("requests", (_RATE, TTFT), relative=True),  # by input length
    "course": FigureKind("requests", (_RATE,)),  # from the trace's start to its end
    "blocks": FigureKind("requests"),  # which blocks of a block cache are reused
    "distribution": FigureKind("traces"),  # how long inputs and outputs are
    "sequence-bytes": FigureKind("models"),  # what caching one sequence takes
    "efficiency": FigureKind("models"),  # FLOPs saved per byte
    "flops": FigureKind("models"),  # FLOPs by kind of layer
}
# y as a multiple of that of the label `over`, its change in percent, and the difference (of shares: in points).
RELATIONS = ("percent", "times", "difference")
_FIGURE_TEXTS = ("name", "title", "kind", "x", "y", "over", "relation", "latency", "capacity")
_FIGURE_KEYS = (*_FIGURE_TEXTS, "series", "percentile")


@dataclass(frozen=True)
class Figure:
    """A table [[figures]], checked; `marconi_sim.sweeps.experiment` shows one.

    Attributes:
        name: stem of the image's file.
        relation: one of RELATIONS where there is `over`.
        latency: how the latency table is read where y is `ttft`.
        capacity: as in the experiment, of the runs that are shown; empty: all.
        percentile: of `ttft` over a run's requests, 0 to 100; None where the figure shows all of them.
    """

    name: str
    title: str
    kind: str
    x: str
    y: str
    series: tuple[str, ...]
    over: str
    relation: str
    latency: str
    percentile: float | None
    capacity: str = ""


def _one_of(table: Table, key: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if value not in known:
        raise UserError(
            f"{table.place(key)}: {key} = '{value}': unknown{did_you_mean(value, known)}"
        )
    return value


def _no_effect(table: Table, key: str, why: str) -> None:
    if key in table.values:
        raise UserError(f"{table.place(key)}: {key} has no effect {why}; leave it out")


def _percentile(table: Table, y: str, kind: str) -> float | None:
    percentile = table.values.get("percentile")
    of_a_run = y == TTFT and FIGURE_KINDS[kind].of == "runs"
    if percentile is None:
        if of_a_run:
            raise UserError(
                f"{table.place('y')}: y = \"{TTFT}\" of kind '{kind}' needs a percentile"
            )
        return None
    if type(percentile) not in (int, float) or not 0 <= percentile <= 100:
        raise UserError(
            f"{table.place('percentile')}: percentile = {percentile!r}, expected a number from 0 to 100"
        )
    if not of_a_run:
        raise UserError(
            f'{table.place("percentile")}: percentile has no effect here; it goes with y = "{TTFT}"'
            " of kind box, lines or bars"
        )
    return float(percentile)


def figures_of(experiment: Experiment) -> tuple[Figure, ...]:
    """Return the figures of an experiment, none if it has no [[figures]].

    Raises:
        UserError: an unknown key or a value that is not allowed, and the message names the line; two figures of one
            name; or a figure of runs where nothing is run.
    """
    figures: dict[str, Figure] = {}
    for table in experiment.figure_tables:
        figure = _read(table, experiment)
        if figure.name in figures:
            raise UserError(
                f"{table.place()}: a second figure named '{figure.name}'; give it another name"
            )
        figures[figure.name] = figure
    return tuple(figures.values())


def _read(table: Table, experiment: Experiment) -> Figure:
    labels = experiment.labels()
    table.check_keys(_FIGURE_KEYS)
    texts = {key: table.take(key, str) for key in _FIGURE_TEXTS if key in table.values}
    kind = _one_of(table, "kind", table.take("kind", str), FIGURE_KINDS)
    of, ys, has_x, relative = FIGURE_KINDS[kind]
    if of in ("runs", "requests") and not experiment.policies:
        raise UserError(f"{experiment.path}: no [[policies]]; kind '{kind}' needs at least one")
    y = _one_of(table, "y", table.take("y", str), ys) if ys else ""
    if (of == "requests" or y == TTFT) and not experiment.requests:
        what = f"kind '{kind}'" + (f" of '{y}'" if y else "")
        raise UserError(
            f"{table.place('kind' if of == 'requests' else 'y')}: {what} is made from requests;"
            " set requests = true at the top of the file"
        )
    if has_x:
        x = table.take("x", str)
        if not x.startswith("param_"):
            _one_of(table, "x", x, SETTINGS)
    else:
        _no_effect(table, "x", f"with kind '{kind}'")
    for key in (*(() if ys else ("y", "series")), *(() if relative else ("over",))):
        _no_effect(table, key, f"with kind '{kind}'")
    if of != "runs":
        _no_effect(table, "capacity", f"with kind '{kind}'")
    if y != TTFT:
        _no_effect(table, "latency", f'here; it goes with y = "{TTFT}"')
    if "over" in texts:
        _one_of(table, "over", texts["over"], labels)
    else:
        _no_effect(table, "relation", "without the key 'over'")
    series = table.take("series", list) if "series" in table.values else labels
    for one in series:
        _one_of(table, "series", one, labels)
    return Figure(
        name=texts.get("name", experiment.name),
        title=texts.get("title", ""),
        kind=kind,
        x=texts.get("x", ""),
        y=y,
        series=tuple(series),
        over=texts.get("over", ""),
        relation=_one_of(table, "relation", texts.get("relation", RELATIONS[0]), RELATIONS),
        latency=_one_of(table, "latency", texts.get("latency", FORMS[0]), FORMS),
        percentile=_percentile(table, y, kind),
        capacity=texts.get("capacity", ""),
    )
