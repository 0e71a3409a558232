"""The file of a sweep: Parquet, one row per run; the same plan gives the same bytes, however it was run.

Wall-clock times are not in it: they would make every file another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from marconi_sim.base.columns import IDENTITY, METRICS, SETTINGS
from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.base.version import __version__
from marconi_sim.simulation.result import write_table
from marconi_sim.sweeps.journal import Results
from marconi_sim.sweeps.plan import Plan

FORMAT = "marconi-sim sweep"
_KEY = b"marconi_sim"
_TEXTS = {
    "experiment", "label", "trace", "policy", "rules", "model", "accounting", "capacity", "trace_sha256",
    "policy_sha256", "version", "configuration", "run",
}  # fmt: skip
_FLOATS = {
    "tokens_per_state", "sessions_per_second", "response_time", "token_hit_rate", "request_hit_rate", "flops_total",
    "flops_saved",
}  # fmt: skip


def best_in_hindsight(rows: list[dict[str, Any]], best: Mapping[str, str]) -> list[dict[str, Any]]:
    """Add the best rows in hindsight: what a parameter would be worth if it were always chosen right.

    Args:
        rows: of a sweep; those of a configuration follow each other.
        best: label -> label of the added rows. In each configuration the row of this label with the highest token hit
            rate is repeated under the other label, at the end; of equal ones the first, so list a parameter's values in
            ascending order to have ties go to the smallest.
    """
    found = []
    for _, group in groupby(rows, key=lambda row: row["configuration"]):
        members = list(group)
        found += members
        for label, name in best.items():
            candidates = [row for row in members if row["label"] == label]
            if candidates:
                winner = max(candidates, key=lambda row: row["token_hit_rate"])
                found.append({**winner, "label": name})
    return found


def _type(name: str, values: list[Any]) -> pa.DataType:
    if name == "synthetic":
        return pa.bool_()
    if name in _TEXTS:
        return pa.string()
    if name in _FLOATS:
        return pa.float64()
    if name in SETTINGS or name in METRICS:
        return pa.int64()
    # A parameter, or what a policy found out about itself.
    kinds = {type(value) for value in values if value is not None}
    if str in kinds:
        return pa.string()
    return pa.int64() if kinds == {int} else pa.float64()


def make_table(plan: Plan, results: Mapping[str, Results]) -> pa.Table:
    """Return the table of a plan whose runs are all finished."""
    rows = [{**row.settings, **results[row.run.key]} for row in plan.rows]
    rows = best_in_hindsight(rows, plan.best)
    names = dict.fromkeys(name for row in rows for name in row)
    params = [name for name in names if name.startswith("param_")]
    known = (*SETTINGS, *METRICS, *IDENTITY)
    findings = sorted(name for name in names if name not in known and name not in params)
    after = SETTINGS.index("policy") + 1
    order = [*SETTINGS[:after], *params, *SETTINGS[after:], *METRICS, *findings, *IDENTITY]
    columns = {}
    for name in order:
        values = [row.get(name) for row in rows]
        kind = _type(name, values)
        if kind == pa.string():
            values = [None if value is None else str(value) for value in values]
        columns[name] = pa.array(values, kind)
    facts = {
        "format": FORMAT,
        "version": __version__,
        "experiment": plan.experiment.name,
        "title": plan.experiment.title,
        "traces": {name: _provenance(workload) for name, workload in plan.workloads.items()},
    }
    return pa.table(columns).replace_schema_metadata({_KEY: orjson.dumps(facts)})


def _provenance(workload: Any) -> dict[str, Any]:
    recipe = workload.recipe
    if recipe is None:
        return {"title": workload.name, "source": workload.trace.provenance.get("source")}
    return {
        "title": recipe.title,
        "source": recipe.source,
        "licence": recipe.licence,
        "synthetic": recipe.synthetic,
        "caveats": list(recipe.caveats),
    }


def write_sweep(table: pa.Table, path: Path) -> None:
    """Write a sweep's file, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    write_table(table, path)


def read_sweep(path: Path) -> pa.Table:
    """Return the table in a sweep's file.

    Raises:
        UserError: not such a file.
    """
    try:
        table = pq.read_table(readable_file(path, "sweep"))
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path}: not a Parquet file ({str(error).splitlines()[0]}); give the --out of a sweep"
        ) from error
    if sweep_facts(table).get("format") != FORMAT:
        raise UserError(f"{path}: a Parquet file, but not of a sweep; give the --out of a sweep")
    return table


def sweep_facts(table: pa.Table) -> dict[str, Any]:
    """Return what a sweep's file says about itself: experiment, title, version, provenance of its traces."""
    text = (table.schema.metadata or {}).get(_KEY)
    try:
        facts = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        facts = {}
    return facts if isinstance(facts, dict) else {}


def finished_results(table: pa.Table) -> dict[str, Results]:
    """Return run -> its results of a sweep's table."""
    settings = {*SETTINGS, *IDENTITY} - {"capacity_bytes"}
    names = [n for n in table.column_names if n not in settings and not n.startswith("param_")]
    runs = table["run"].to_pylist()
    return dict(zip(runs, table.select(names).to_pylist(), strict=True))
