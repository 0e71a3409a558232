"""Experiments: `experiments/NAME.toml` says what a sweep runs, and what is plotted from it.

    title = "Cache size on SWE-bench"
    description = "..."
    requests = true                       # also one file per run with a row per request; default false

    [[traces]]                            # as many tables as there are traces
    trace = "swebench"                    # a name in the catalogue, or a file: beside this one if it is relative
    capacity = ["60GB", "0.1wss"]         # wss: of what the policy `unbounded` would hold at most (working set size)
    sessions = 100                        # the other keys may be left out: then as the trace's recipe says
    sessions_per_second = [0.5, 1, 2]
    response_time = [5.0, 7.5, 10.0]
    seed = [1, 2, 3]

    [[models]]                            # may be left out: hybrid-7b
    model = "hybrid-7b"
    state_dimension = [16, 128]           # any option of the model: `marconi_sim.model.vary`

    [[policies]]                          # like capacity, may be left out if every figure is of traces or models alone
    policy = "marconi"
    label = "static alpha"                # what its runs are called together; default: the policy's name
    best = "best static alpha"            # may be left out: add the best of these runs, in hindsight, under this label
    params.alpha = [0.0, 0.5, 1.0]        # parameters of the policy
    rules = ["paper", "artifact"]         # may be left out: paper; artifact: as the authors' published code does

    [[figures]]                           # may be left out; read and checked by who draws: marconi_sim.figures.spec
    kind = "lines"                        # one of its FIGURE_KINDS
    x = "capacity_bytes"                  # a column of the sweep's file
    y = "token_hit_rate"                  # a column too, or "ttft"
    series = ["marconi", "sglang+"]       # labels; default all
    capacity = "0.1wss"                   # one of the traces' capacities; default all
    over = "sglang+"                      # may be left out: y relative to this label in the same configuration
    relation = "percent"                  # of y to that: one of its RELATIONS
    latency = "linear"                    # for y = "ttft": one of marconi_sim.latency.FORMS; default the first

A value may be a list: every combination is run. Every key is checked: an unknown key or a value that is not allowed is
an error that names the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UserError
from marconi_sim.base.toml_document import Document, Table

DEFAULT_MODEL = "hybrid-7b"

_TRACE_NUMBERS = ("sessions", "sessions_per_second", "response_time", "seed")


@dataclass(frozen=True)
class Grid:
    """One table of an experiment: a thing, and values of its settings of which every combination is run.

    Attributes:
        name: of a trace, a model or a policy in the catalogue, or the absolute path of a file.
        values: setting -> its values, each at least one.
        table: where it stands, for messages.
    """

    name: str
    values: Mapping[str, tuple[Any, ...]]
    table: Table

    def combinations(self) -> list[dict[str, Any]]:
        """Return every combination of values, the last setting changing fastest."""
        found: list[dict[str, Any]] = [{}]
        for key, values in self.values.items():
            found = [{**one, key: value} for one in found for value in values]
        return found


@dataclass(frozen=True)
class PolicyGrid(Grid):
    """A policy and values of its parameters.

    Attributes:
        label: what its runs are called together.
        best: label of the best of them in each configuration; empty if it is not asked for.
        rules: of the paper or of its authors' published code; as in `simulate`.
    """

    label: str = ""
    best: str = ""
    rules: tuple[str, ...] = ("paper",)


@dataclass(frozen=True)
class Experiment:
    """A checked experiment. Names of traces, models and policies are not looked up yet.

    Attributes:
        name: the file's name without `.toml`.
        path: the file.
        requests: whether each run also writes one row per request.
        figure_tables: as they stand in the file; who draws reads them.
    """

    name: str
    path: Path
    title: str
    description: str
    requests: bool
    traces: tuple[Grid, ...]
    models: tuple[Grid, ...]
    policies: tuple[PolicyGrid, ...]
    figure_tables: tuple[Table, ...]

    def labels(self) -> list[str]:
        """Return the labels of the runs, in order of first mention."""
        found = {label: None for p in self.policies for label in (p.label, p.best) if label}
        return list(found)


def _name(table: Table, key: str, path: Path) -> str:
    """Return the name or the absolute path that a key holds: a relative path is beside the experiment."""
    text: str = table.take(key, str)
    return str((path.parent / text).resolve()) if "/" in text else text


def _values(table: Table, key: str, kinds: tuple[type, ...], word: str) -> tuple[Any, ...]:
    """Return the value or the values of a key, each of one of these types."""
    value = table.values[key]
    values = value if isinstance(value, list) else [value]
    if not values or not all(type(one) in kinds for one in values):
        raise UserError(
            f"{table.place(key)}: {key} = {value!r}, expected {word}, or a list of them"
        )
    for one in values:
        if values.count(one) > 1:
            raise UserError(f"{table.place(key)}: {key} = {value!r}: {one!r} is listed twice")
    return tuple(values)


def _trace(table: Table, path: Path, runs: bool) -> Grid:
    table.check_keys(("trace", "capacity", *_TRACE_NUMBERS))
    name = _name(table, "trace", path)
    if runs and "capacity" not in table.values:
        raise UserError(f"{table.place()}: no key 'capacity' in [traces]; an experiment needs it")
    values: dict[str, tuple[Any, ...]] = {}
    for key in _TRACE_NUMBERS:
        if key in table.values:
            whole = key in ("sessions", "seed")
            kinds = (int,) if whole else (int, float)
            values[key] = _values(table, key, kinds, f"a {'whole ' * whole}number")
    if "capacity" in table.values:
        capacity = _values(table, "capacity", (str, int), 'text like "60GB" or "0.1wss"')
        values["capacity"] = tuple(str(one) for one in capacity)
    return Grid(name, values, table)


def _model(table: Table, path: Path) -> Grid:
    name = _name(table, "model", path)
    values = {
        key: _values(table, key, (int, str), "a whole number or a word")
        for key in table.values
        if key != "model"
    }
    return Grid(name, values, table)


def _policy(table: Table, path: Path) -> PolicyGrid:
    table.check_keys(("policy", "label", "best", "rules", "params"))
    name = _name(table, "policy", path)
    label = table.take("label", str) if "label" in table.values else Path(name).stem
    best = table.take("best", str) if "best" in table.values else ""
    rules: tuple[str, ...] = ("paper",)
    if "rules" in table.values:
        rules = _values(table, "rules", (str,), "'paper' or 'artifact'")
    params = table.values.get("params", {})
    if not isinstance(params, dict):
        raise UserError(f"{table.place('params')}: params = {params!r}, expected params.NAME = ...")
    of_params = Table(table.document, params, table.name, table.number)
    values = {
        key: _values(of_params, key, (str, int, float), "a number or a word") for key in params
    }
    return PolicyGrid(name, values, table, label=label, best=best, rules=rules)


def load_experiment(name_or_path: str | Path, search: Iterable[str | Path] = ()) -> Experiment:
    """Read and check an experiment: a name in the catalogue, or a file.

    Raises:
        UsageError: an unknown name.
        UserError: the file cannot be read, is not TOML, lacks a key, or has an unknown key or a value that is not
            allowed; the message names the line.
    """
    path = catalogue.find("experiments", name_or_path, search)
    document = Document(path, "an experiment")
    document.check_keys(
        ("title", "description", "requests", "traces", "models", "policies", "figures")
    )
    title, description = document.take("title", str), document.take("description", str)
    requests = document.take("requests", bool) if "requests" in document.values else False
    tables = tuple(document.tables("figures"))
    # Without policies nothing is run: then every figure is of traces or models alone.
    runs = bool(document.tables("policies")) or not tables
    for key in ("traces", "policies"):
        if runs and not document.tables(key):
            raise UserError(f"{path}: no [[{key}]]; an experiment needs at least one")
    policies = tuple(_policy(table, path) for table in document.tables("policies"))
    models = tuple(_model(table, path) for table in document.tables("models"))
    return Experiment(
        name=path.stem,
        path=path,
        title=title,
        description=description.strip(),
        requests=requests,
        traces=tuple(_trace(table, path, runs) for table in document.tables("traces")),
        models=models or (Grid(DEFAULT_MODEL, {}, document),),
        policies=policies,
        figure_tables=tables,
    )
