"""The text below a figure: which data, which configuration, which version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from marconi_sim.base.units import format_bytes
from marconi_sim.base.version import __version__
from marconi_sim.latency.table import load_latency
from marconi_sim.model import Model
from marconi_sim.trace.load import Workload

_MANY = 6  # values that are listed; of more the ends are named
SYNTHETIC = "SYNTHETIC"
_COUNTED = {
    "paper": "of the paper's Table 1 and appendix A (FP16)",
    "exact": "of the exact accounting (docs/models.md)",
}


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _listed(values: Iterable[Any]) -> str:
    known = list(dict.fromkeys(value for value in values if not pd.isna(value)))
    if len(known) > _MANY and all(isinstance(value, int | float) for value in known):
        return f"{_number(min(known))} to {_number(max(known))}"
    return ", ".join(_number(v) if isinstance(v, int | float) else str(v) for v in known)


def _source(name: str, title: str, source: str | None, synthetic: bool, amount: str) -> str:
    """Return one sentence about a trace."""
    mark = f"{SYNTHETIC}, " if synthetic else ""
    origin = "" if synthetic or not source else f"; source: {source}"
    return f"{name} ({mark}{title}{origin}): {amount}."


def _amount(requests: Iterable[int], sessions: Iterable[int]) -> str:
    return f"{_listed(requests)} requests of {_listed(sessions)} sessions"


def _configuration(frame: pd.DataFrame) -> str:
    models = _listed(frame.model)
    if frame.accounting.nunique() > 1 or frame.tokens_per_state.nunique() > _MANY:
        costs = dict(zip(frame.model, frame.tokens_per_state, strict=True))
        models = "and the tokens of KV that its state costs: "
        models += ", ".join(f"{name} {tokens:,.0f}" for name, tokens in costs.items())
    parts = [f"Model {models} (accounting: {_listed(frame.accounting)})"]
    for column, word, unit in (
        ("capacity", "cache", ""),
        ("sessions_per_second", "sessions per second", ""),
        ("response_time", "response time", "\u00a0s"),
        ("seed", "seed", ""),
    ):
        traces: dict[str, list[str]] = {}
        for name, rows in frame.groupby("trace", sort=False):
            traces.setdefault(_listed(rows[column]), []).append(str(name))
        for text, names in traces.items():
            if text:
                which = f" ({', '.join(names)})" if len(traces) > 1 else ""
                parts.append(f"{word} {text}{unit}{which}")
    return "; ".join(parts) + "."


def foot_of_sweep(
    frame: pd.DataFrame, facts: dict[str, Any], of: str, latency: str | None
) -> list[str]:
    """Return the foot of a figure that shows rows of a sweep.

    Args:
        frame: the rows.
        facts: what the sweep's file says about itself.
        of: the experiment's file, for people.
        latency: how the latency table is read; None if the figure shows no times.
    """
    data = []
    for name, rows in frame.groupby("trace", sort=False):
        known = facts.get("traces", {}).get(name, {})
        synthetic = bool(rows.synthetic.any())
        amount = _amount(rows.requests, rows.sessions)
        data.append(
            _source(str(name), known.get("title", ""), known.get("source"), synthetic, amount)
        )
    lines = ["Data: " + " ".join(data), "Configuration: " + _configuration(frame)]
    if latency is not None:
        table = load_latency()
        lines.append(
            f"Times: the {latency} table of {table.title}, read at the tokens left to prefill; no queueing."
            f" {table.source[0].upper()}{table.source[1:]}."
        )
    traces = ", ".join(
        f"{n} {h[:8]}" for n, h in dict(zip(frame.trace, frame.trace_sha256, strict=True)).items()
    )
    lines.append(f"marconi-sim {facts.get('version', __version__)}, {of}. Traces: {traces}.")
    return lines


def foot_of_traces(workloads: Iterable[Workload], of: str) -> list[str]:
    """Return the foot of a figure that shows traces."""
    data, hashes = [], []
    for workload in workloads:
        recipe, provenance = workload.recipe, workload.trace.provenance
        title = recipe.title if recipe else "no recipe"
        source = recipe.source if recipe else provenance.get("source")
        synthetic = recipe.synthetic if recipe else bool(provenance.get("synthetic"))
        amount = _amount([workload.requests], [workload.sessions])
        data.append(_source(workload.name, title, source, synthetic, amount))
        hashes.append(f"{workload.name} {workload.trace.sha256[:8]}")
    return [
        "Data: " + " ".join(data),
        f"marconi-sim {__version__}, {of}. Traces: {', '.join(hashes)}.",
    ]


def foot_of_models(models: Iterable[Model], of: str) -> list[str]:
    """Return the foot of a figure that shows formulas."""
    models = list(models)
    texts = []
    for m in models:
        layers = m.layers()
        sizes = zip("DN", m.dimensions().values(), strict=True)
        texts.append(
            f"{m.name}: {layers['attention']} attention, {layers['ssm']} SSM and {layers['mlp']} MLP layers, "
            + ", ".join(f"{letter} = {size}" for letter, size in sizes if size is not None)
            + f", {format_bytes(m.kv_bytes)} of KV per token, {format_bytes(m.state_bytes)} per state."
        )
    counts = [_COUNTED[one] for one in dict.fromkeys(m.accounting for m in models)]
    return [
        f"Formulas {' and '.join(counts)}, no trace. " + " ".join(texts),
        f"marconi-sim {__version__}, {of}.",
    ]
