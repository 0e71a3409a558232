"""When requests arrive: the one place that turns a trace's sessions into times.

A session starts at the time its source tells (`native`) or at its place in the order of sessions /
sessions_per_second (`fixed`: evenly spaced, as in the published code; FIDELITY rows G1 to G3).
Every later turn follows the turn before it after a gap: as the source tells (`native`), a whole
number of seconds drawn from a Poisson distribution (`response-time`: the environment of an agent
answers), or the time to type the user's words (`typing`: a chat).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError
from marconi_sim.core.clock import add_up
from marconi_sim.trace.compiled.trace import Trace

STARTS = ("native", "fixed")
GAPS = ("native", "response-time", "typing")
# Parameter -> (the field that decides whether it is used, the value for which it is, its default).
PARAMETERS = {
    "sessions_per_second": ("start", "fixed", 1.0),
    "response_time": ("gap", "response-time", 5.0),
    "seed": ("gap", "response-time", 42),
    "words_per_minute": ("gap", "typing", 90.0),
}
_LARGEST = 1e9  # keeps times finite and exact to a microsecond


@dataclass(frozen=True)
class Arrivals:
    """An arrival model.

    A parameter that its `start` or `gap` does not use is None; one left out gets its default.

    Attributes:
        start: one of `STARTS`.
        gap: one of `GAPS`.
        sessions_per_second: sessions started per second, 1e-9 to 1e9; default 1. Used by start
            `fixed`.
        response_time: mean of the Poisson distribution, seconds, 0 to 1e9; default 5. Used by gap
            `response-time`.
        seed: of the draws, >= 0; default 42. Used by gap `response-time`.
        words_per_minute: typing speed, 1e-9 to 1e9; default 90. Used by gap `typing`.

    Raises:
        UsageError: an unknown start or gap, a parameter out of its range, or one that is not used.
    """

    start: str
    gap: str
    sessions_per_second: float | None = None
    response_time: float | None = None
    seed: int | None = None
    words_per_minute: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("start", STARTS), ("gap", GAPS)):
            if getattr(self, name) not in allowed:
                given = getattr(self, name)
                raise UsageError(f"{name} '{given}': unknown; known: {', '.join(allowed)}")
        for name, (decider, needed, default) in PARAMETERS.items():
            value = getattr(self, name)
            if getattr(self, decider) != needed:
                if value is not None:
                    raise UsageError(
                        f"{name} {value}: has no effect with {decider} '{getattr(self, decider)}';"
                        f" use {decider} '{needed}' or leave it out"
                    )
            else:
                used = default if value is None else _checked(name, value)
                object.__setattr__(self, name, used)


def _checked(name: str, value: object) -> float | int:
    """Return a parameter's value as a plain number, if it is in its range."""
    if name == "seed":
        if (
            not isinstance(value, int | np.integer)
            or isinstance(value, bool)
            or not 0 <= int(value) < 2**63
        ):
            raise UsageError(f"seed {value}: must be a whole number from 0 to 2^63-1")
        return int(value)
    least = 0.0 if name == "response_time" else 1e-9
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        number = float(value)
        if least <= number <= _LARGEST:
            return number
    raise UsageError(f"{name} {value}: must be a number from {least:g} to {_LARGEST:g}")


def retimed(
    arrivals: Arrivals,
    sessions_per_second: float | None = None,
    response_time: float | None = None,
    seed: int | None = None,
) -> Arrivals:
    """Return the model with other parameters, switched to the form that uses them.

    `sessions_per_second` makes the starts `fixed` and keeps the gaps; `response_time` makes the
    gaps `response-time`. A `seed` changes nothing where no gap is drawn.

    Raises:
        UsageError: a parameter out of its range.
    """
    changes: dict[str, object] = {}
    if sessions_per_second is not None:
        changes |= {"start": "fixed", "sessions_per_second": sessions_per_second}
    if response_time is not None:
        changes |= {
            "gap": "response-time",
            "response_time": response_time,
            "words_per_minute": None,
        }
    if seed is not None:
        _checked("seed", seed)
        if "response-time" in (arrivals.gap, changes.get("gap")):
            changes["seed"] = seed
    return dataclasses.replace(arrivals, **changes)  # type: ignore[arg-type]


def default_arrivals(trace: Trace) -> Arrivals:
    """Return the model of a trace that has no recipe.

    Native times where the source tells them all. Otherwise one session a second; the gaps are
    native if the think time of every later turn is known, else `response-time`.
    """
    known = ~np.isnan(trace.arrival)
    if known.all():
        return Arrivals("native", "native")
    first, rows = by_session(trace)
    later = rows[~first]
    told = known | ~np.isnan(trace.think_time)
    return Arrivals("fixed", "native" if told[later].all() and later.size else "response-time")


def by_session(trace: Trace) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return (which rows begin a session, rows), in order of session, turn, position."""
    key = trace.session.astype(np.int64) << 32 | trace.turn
    rows = np.argsort(key, kind="stable")
    session = trace.session[rows]
    first = np.ones(rows.size, np.bool_)
    first[1:] = session[1:] != session[:-1]
    return first, rows


def _native_gaps(
    trace: Trace, rows: NDArray[np.int64], first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the gap before each of `rows`: between arrivals if both are told, or think time."""
    arrival = trace.arrival[rows]
    gaps = np.zeros(rows.size)
    gaps[1:] = arrival[1:] - arrival[:-1]
    gaps = np.where(np.isnan(gaps), trace.think_time[rows], gaps)
    gaps[first] = 0.0
    untold = np.isnan(gaps)
    if untold.any():
        row = int(rows[untold.argmax()])
        raise UsageError(
            f"gap 'native': request {row} (session '{trace.session_names[trace.session[row]]}',"
            f" turn {trace.turn[row]}) has neither an arrival nor a think time;"
            " use gap 'response-time' or 'typing'"
        )
    return gaps


def _gaps(
    trace: Trace, arrivals: Arrivals, rows: NDArray[np.int64], first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the seconds between each of `rows` and its session's turn before; 0 for the first."""
    if arrivals.gap == "native":
        return _native_gaps(trace, rows, first)
    gaps = np.zeros(rows.size)
    if arrivals.gap == "response-time":
        # Drawn for the whole trace, so that a part of the sessions keeps its gaps.
        assert arrivals.response_time is not None
        generator = np.random.default_rng(arrivals.seed)
        gaps[~first] = generator.poisson(arrivals.response_time, int((~first).sum()))
        return gaps
    if trace.words.max() < 0:
        raise UsageError(
            "gap 'typing': the trace does not know how many words were typed;"
            " use gap 'native' or 'response-time'"
        )
    assert arrivals.words_per_minute is not None
    words = np.maximum(trace.words[rows], 0)  # a turn without a message of the user follows at once
    gaps[~first] = words[~first] / (arrivals.words_per_minute / 60)
    return gaps


def _starts(
    trace: Trace, arrivals: Arrivals, rows: NDArray[np.int64], first: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the start of each session, in order of sessions."""
    if arrivals.start == "fixed":
        assert arrivals.sessions_per_second is not None
        return np.arange(int(first.sum())) / arrivals.sessions_per_second
    starts = trace.arrival[rows[first]]
    if np.isnan(starts).any():
        name = trace.session_names[trace.session[rows[first]][np.isnan(starts).argmax()]]
        raise UsageError(
            f"start 'native': session '{name}' does not tell when it started; use start 'fixed'"
            " (sessions_per_second)"
        )
    return starts


def arrival_times(
    trace: Trace, arrivals: Arrivals
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return (rows, arrival, think time) of every request, in order of session, turn, position.

    Rows: int64 (requests,), of the trace. Arrival and think time: float64 (requests,), seconds. The
    think time is that between the previous answer of the session and this request, for closed
    loops: as the source tells it if the gaps are native and it does, otherwise the gap itself; 0
    for the first turn of a session.

    Raises:
        UsageError: the model needs times or words that the trace does not have.
    """
    first, rows = by_session(trace)
    gaps = _gaps(trace, arrivals, rows, first)
    steps = gaps.copy()
    steps[first] = _starts(trace, arrivals, rows, first)
    fixed_point = first
    if arrivals.start == arrivals.gap == "native":
        told = ~np.isnan(trace.arrival[rows])
        fixed_point = first | told
        steps[told] = trace.arrival[rows[told]]
    arrival = np.empty(rows.size)
    add_up(steps, fixed_point, arrival)
    think_time = gaps
    if arrivals.gap == "native":
        known = trace.think_time[rows]
        think_time = np.where(np.isnan(known) | first, gaps, known)
    return rows, arrival, np.maximum(think_time, 0.0)
