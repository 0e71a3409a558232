"""From a name or a file to a workload: a compiled trace and when its requests arrive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError
from marconi_sim.base.notices import notice
from marconi_sim.trace.arrivals import (
    Arrivals,
    arrival_times,
    default_arrivals,
    retimed,
)
from marconi_sim.trace.compiled import trace as compiled
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.compile_source import compile_source
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format, format_named
from marconi_sim.trace.recipe import Recipe, load_recipe

# Formats whose requests follow from the file alone; the others need choices, which `trace import`
# records.
DIRECT_FORMATS = ("artifact", "mooncake")


@dataclass(frozen=True)
class Workload:
    """A trace, which of its requests take part, in which order and when.

    Attributes:
        name: the name of the trace in tables and results.
        trace: the compiled trace, with all its requests.
        order: int64 (n,). Rows of `trace` in processing order: by arrival, session, turn, position
            in the source.
        arrival: float64 (n,), seconds. When request `order[i]` arrives.
        think_time: float64 (n,), seconds. From the session's previous answer to request `order[i]`,
            for closed loops.
        arrivals: the model that gave the times.
        sessions: how many sessions take part: the first ones, in order of sessions.
        recipe: what the catalogue says about the trace; None for a bare file.
    """

    name: str
    trace: Trace
    order: NDArray[np.int64]
    arrival: NDArray[np.float64]
    think_time: NDArray[np.float64]
    arrivals: Arrivals
    sessions: int
    recipe: Recipe | None = None

    @property
    def requests(self) -> int:
        """Number of requests that take part."""
        return self.order.size


def _trace_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return Path(name).stem or name


def _load_bare(path: Path) -> Trace:
    """Return the trace in a file that has no recipe."""
    if path.is_file() and compiled.is_compiled(path):
        return compiled.load(path)
    chosen = detect_format(path)
    if chosen.name not in DIRECT_FORMATS:
        raise UsageError(
            f"{path}: format '{chosen.name}' needs choices such as a tokenizer;"
            f" turn it into a trace first: marconi-sim trace import --format {chosen.name}"
        )
    return compile_source(path, format_named(chosen.name, ImportOptions()), ImportOptions(), {})


def _bare_arrivals(trace: Trace, name: str) -> Arrivals:
    """Return the arrival model of a trace without a recipe; say so if it is invented."""
    arrivals = default_arrivals(trace)
    if arrivals.start != "native":
        gap = (
            "think times as in the source"
            if arrivals.gap == "native"
            else f"Poisson({arrivals.response_time:g} s) between turns, seed {arrivals.seed}"
        )
        notice(
            f"trace '{name}' does not tell when its requests arrive: one session a second, {gap}"
            " (--sessions-per-second, --response-time, --seed)"
        )
    return arrivals


def _retime(
    arrivals: Arrivals,
    name: str,
    sessions_per_second: float | None,
    response_time: float | None,
    seed: int | None,
) -> Arrivals:
    """Return the model with the user's parameters; say where one changes its kind, or nothing."""
    changed = retimed(arrivals, sessions_per_second, response_time, seed)
    if changed.start != arrivals.start:
        notice(
            f"trace '{name}': sessions start evenly spaced instead of as in the source"
            " (--sessions-per-second)"
        )
    if changed.gap != arrivals.gap:
        notice(
            f"trace '{name}': gaps between turns are drawn from a Poisson distribution instead of"
            f" '{arrivals.gap}' (--response-time)"
        )
    if seed is not None and changed.seed is None:
        notice(
            f"trace '{name}': seed {seed} has no effect on its arrivals, nothing in them is drawn"
        )
    return changed


def schedule(
    trace: Trace,
    arrivals: Arrivals,
    *,
    name: str,
    sessions: int | None = None,
    recipe: Recipe | None = None,
) -> Workload:
    """Return the workload of the first `sessions` sessions (default: all) of a trace.

    Raises:
        UsageError: fewer than one session or more than there are, or the model needs what the trace
            does not have.
    """
    available = len(trace.session_names)
    chosen = available if sessions is None else sessions
    if type(chosen) is not int or not 1 <= chosen <= available:
        raise UsageError(
            f"sessions {chosen}: trace '{name}' has {available}; give 1 to {available}"
        )
    rows, arrival, think_time = arrival_times(trace, arrivals)
    if arrivals.start == arrivals.gap == "native":
        in_file = trace.arrival[trace.session < chosen]
        if (np.diff(in_file) < 0).any():
            notice(
                f"trace '{name}': its requests are not in order of time;"
                " sorted by arrival, session, turn, position"
            )
    taken = np.flatnonzero(trace.session[rows] < chosen)
    by_time = taken[np.argsort(arrival[taken], kind="stable")]
    return Workload(
        name, trace, rows[by_time], arrival[by_time], think_time[by_time], arrivals, chosen, recipe
    )


def open_trace(
    name_or_path: str | Path, search: Iterable[str | Path] = ()
) -> tuple[str, Trace, Recipe | None]:
    """Return (name, trace, recipe) of what `load_trace` takes, without times.

    Raises:
        UsageError, UserError: as `load_trace`.
    """
    path = catalogue.find("traces", name_or_path, search)
    if path.suffix == ".toml":
        recipe = load_recipe(path)
        return recipe.name, compiled.load(recipe.data), recipe
    return _trace_name(path), _load_bare(path), None


def load_trace(
    name_or_path: str | Path,
    *,
    sessions: int | None = None,
    sessions_per_second: float | None = None,
    response_time: float | None = None,
    seed: int | None = None,
    search: Iterable[str | Path] = (),
) -> Workload:
    """Return the workload that a name or a file means.

    Args:
        name_or_path: a name in the catalogue; or a file: a recipe (`.toml`), a compiled trace
            (`.parquet`), the JSONL of the published Marconi code or of Mooncake. Text with a path
            separator, or that is the name of an existing file with an ending, means a file.
        sessions: only the first so many sessions, in order of sessions; default all.
        sessions_per_second: start sessions evenly spaced at this rate instead of as the recipe or
            the source says.
        response_time: draw the gaps between turns from a Poisson distribution with this mean, in
            seconds.
        seed: of those draws.
        search: folders of the user that are laid out like the catalogue, see
            `marconi_sim.base.catalogue`.

    Raises:
        UsageError: an unknown name, a format that has to be imported first, or a parameter out of
            its range.
        UserError: a file that cannot be used; the message names the place.
    """
    name, trace, recipe = open_trace(name_or_path, search)
    arrivals = recipe.arrivals if recipe else _bare_arrivals(trace, name)
    arrivals = _retime(arrivals, name, sessions_per_second, response_time, seed)
    return schedule(trace, arrivals, name=name, sessions=sessions, recipe=recipe)
