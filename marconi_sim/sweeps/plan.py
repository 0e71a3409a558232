"""From an experiment to runs: every name looked up, every value checked, every run with a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marconi_sim.base.catalogue import own_folders
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.base.units import parse_bytes
from marconi_sim.base.version import __version__
from marconi_sim.core.departures import PAPER
from marconi_sim.model import Model, load_model, vary
from marconi_sim.policy.base import Policy
from marconi_sim.policy.load import load_policy, recipe_params
from marconi_sim.sweeps.experiment import Experiment, Grid, PolicyGrid
from marconi_sim.sweeps.keys import key_of, source_sha256
from marconi_sim.sweeps.runs import (
    WORKING_SET,
    WORKING_SET_POLICY,
    Configuration,
    Run,
    Schedule,
    working_set_fraction,
)
from marconi_sim.trace.arrivals import default_arrivals, retimed
from marconi_sim.trace.load import Workload, open_trace, schedule


@dataclass(frozen=True)
class Row:
    """A row of the results: a run, and the columns that are known before it runs."""

    run: Run
    settings: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What an experiment asks for.

    Attributes:
        rows: in the order of the results. Two rows may ask for the same run under different labels.
        runs: the different runs, in order of first mention.
        best: label of some rows -> label of the best of them in each configuration.
        workloads: one workload per trace, the first.
    """

    experiment: Experiment
    search: tuple[str, ...]
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    best: dict[str, str]
    workloads: dict[str, Workload]


def _check_capacity(capacity: str) -> None:
    fraction = working_set_fraction(capacity)
    if fraction is None:
        parse_bytes(capacity)
    elif fraction <= 0:
        raise UserError(f"capacity '{capacity}': must be above 0{WORKING_SET}")


def _schedules(grid: Grid, search: tuple[str, ...]) -> list[tuple[Schedule, Workload]]:
    """Return every schedule of a trace's table, checked by making it."""
    table = grid.table
    with table.at("trace"):
        name, trace, recipe = open_trace(grid.name, search)
    base = recipe.arrivals if recipe else default_arrivals(trace)
    with table.at("capacity"):
        for capacity in grid.values["capacity"]:
            _check_capacity(capacity)
    found: dict[Schedule, Workload] = {}
    values = {key: value for key, value in grid.values.items() if key != "capacity"}
    for one in dataclasses.replace(grid, values=values).combinations():
        sessions = one.pop("sessions", None)
        try:
            arrivals = retimed(base, **one)
            workload = schedule(trace, arrivals, name=name, sessions=sessions, recipe=recipe)
        except UserError as error:
            key = str(error).split(" ", 1)[0]
            place = table.place(key if key in grid.values else "trace")
            raise UserError(f"{place}: {error}") from error
        if "seed" in one and arrivals.seed is None:
            raise UserError(
                f"{table.place('seed')}: seed {one['seed']}: has no effect on trace '{name}', nothing in its arrivals"
                " is drawn; leave it out or give a response_time"
            )
        made = Schedule(
            grid.name, trace.sha256, workload.sessions, arrivals, requests=workload.requests
        )
        found[made] = workload
    return list(found.items())


def _models(grid: Grid) -> list[Model]:
    with grid.table.at("model"):
        base = load_model(grid.name)
    if grid.values:
        grid.table.check_keys(("model", *base.options()))
    for key, values in grid.values.items():
        with grid.table.at(key):
            for value in values:
                vary(base, {key: value})
    with grid.table.at():
        return [vary(base, one) for one in grid.combinations()]


def _policies(
    grid: PolicyGrid, search: tuple[str, ...], workload: Workload
) -> list[tuple[type[Policy], dict[str, Any]]]:
    """Return the policy with every combination of its parameters; the others are as the trace's recipe says."""
    with grid.table.at("policy"):
        cls = load_policy(grid.name, search)
    for key, values in grid.values.items():
        with grid.table.at(key):
            for value in values:
                cls(**{key: value})
    recipe = workload.recipe
    defaults = recipe_params(cls, recipe.policy_defaults, search) if recipe else {}
    return [(cls, cls(**{**defaults, **one}).params) for one in grid.combinations()]


def _check_rules(
    grid: PolicyGrid, policies: list[tuple[type[Policy], dict[str, Any]]], models: list[Model]
) -> None:
    """Raise unless every policy can be replayed with every model under the rules that are asked for."""
    if grid.rules == ("paper",):
        return
    from marconi_sim.policy.artifact import check_departing, departures_of

    with grid.table.at("rules"):
        for name in grid.rules:
            if departures_of(name) != PAPER:
                for cls, params in policies:
                    for model in models:
                        check_departing(cls(**params), model)


def _configurations(
    grid: Grid, models: list[Model], search: tuple[str, ...]
) -> list[tuple[Configuration, Workload]]:
    yardstick = load_policy(WORKING_SET_POLICY).sha256
    found = []
    for made, workload in _schedules(grid, search):
        for model in models:
            for capacity in grid.values["capacity"]:
                relative = working_set_fraction(capacity) is not None
                key = key_of(
                    made.trace_sha256, made.sessions, dataclasses.asdict(made.arrivals),
                    model.accounting, model.numbers(), tuple(model.shape), capacity,
                    yardstick if relative else None, source_sha256(),
                )  # fmt: skip
                found.append((Configuration(made, model, capacity, key), workload))
    return found


def _settings(
    experiment: Experiment, label: str, configuration: Configuration, workload: Workload,
    cls: type[Policy], run: Run,
) -> dict[str, Any]:  # fmt: skip
    recipe = workload.recipe
    arrivals = configuration.schedule.arrivals
    synthetic = recipe.synthetic if recipe else workload.trace.provenance.get("synthetic")
    return {
        "experiment": experiment.name,
        "label": label,
        "trace": workload.name,
        "synthetic": bool(synthetic),
        "policy": cls.name,
        "rules": run.rules,
        **{f"param_{key}": value for key, value in run.params},
        "model": configuration.model.name,
        "accounting": configuration.model.accounting,
        **configuration.model.numbers(),
        "capacity": configuration.capacity,
        "sessions": configuration.schedule.sessions,
        "sessions_per_second": arrivals.sessions_per_second,
        "response_time": arrivals.response_time,
        "seed": arrivals.seed,
        "trace_sha256": configuration.schedule.trace_sha256,
        "policy_sha256": run.policy_sha256,
        "version": __version__,
        "configuration": configuration.key,
        "run": run.key,
    }


def make_plan(experiment: Experiment, search: Iterable[str | Path] = ()) -> Plan:
    """Return the runs of an experiment, in a fixed order.

    Raises:
        UsageError: there is nothing to run.
        UserError: a name or a value that is not allowed; the message names the file and the line.
    """
    if not experiment.policies:
        raise UsageError(
            f"experiment '{experiment.name}': has nothing to run; draw it: marconi-sim figures {experiment.name}"
        )
    folders = tuple(str(Path(folder).resolve()) for folder in own_folders(search))
    models = [model for grid in experiment.models for model in _models(grid)]
    rows: dict[tuple[str, str], Row] = {}
    workloads: dict[str, Workload] = {}
    for grid in experiment.traces:
        configurations = _configurations(grid, models, folders)
        first = configurations[0][1]
        workloads.setdefault(first.name, first)
        policies = []
        for policy_grid in experiment.policies:
            chosen = _policies(policy_grid, folders, first)
            _check_rules(policy_grid, chosen, models)
            policies += [
                (policy_grid, *one, rules) for rules in policy_grid.rules for one in chosen
            ]
        for configuration, workload in configurations:
            for policy_grid, cls, params, rules in policies:
                key = key_of(configuration.key, cls.name, cls.sha256, params, rules)
                run = Run(
                    configuration, policy_grid.name, cls.sha256, tuple(params.items()), rules, key
                )
                label = policy_grid.label
                if (label, key) in rows:
                    raise UserError(
                        f"{policy_grid.table.place()}: '{label}' asks for the same run twice: trace {workload.name},"
                        f" capacity {configuration.capacity}, {cls.name} {params}"
                    )
                settings = _settings(experiment, label, configuration, workload, cls, run)
                rows[label, key] = Row(run, settings)
    runs = {row.run.key: row.run for row in rows.values()}
    best = {grid.label: grid.best for grid in experiment.policies if grid.best}
    return Plan(experiment, folders, tuple(rows.values()), tuple(runs.values()), best, workloads)
