"""What a reader wants to know about a trace before believing a number that comes from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from marconi_sim.base.units import counted, format_bytes
from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.reuse import reuse
from marconi_sim.core.index.seen import SEEN
from marconi_sim.trace.load import Workload

QUANTILES = {"p5": 5, "p25": 25, "p50": 50, "p75": 75, "p95": 95, "p99": 99}
_WIDEST = 100


@dataclass(frozen=True)
class Description:
    """Facts about a workload. Tokens unless said otherwise.

    Attributes:
        trace: name of the trace.
        title: of its recipe; the name where there is none.
        synthetic: whether its requests were generated; None if neither recipe nor trace tells.
        source: where the sessions come from; empty if unknown, as `licence` and `tokenizer`.
        licence: of the source.
        tokenizer: identity; empty for traces of tokens or block hashes.
        format: of the file that the trace was made from.
        block_size: tokens per block that sharing was observed in; 1 for token traces.
        requests: that take part.
        sessions: that take part.
        turns: requests of each session, as `input_tokens`.
        input_tokens: mean, min, quantiles and max of the inputs of requests.
        output_tokens: the same of outputs.
        total_input_tokens: sum over requests.
        total_output_tokens: sum over requests.
        distinct_tokens: tokens that an infinite cache holds at the end, each shared one once.
        seen_tokens: input tokens that an earlier sequence has shown: what an infinite cache with a
            state at every token reuses.
        seen_share: seen_tokens / total_input_tokens.
        nodes: of the prefix index.
        arrivals: the arrival model, only the fields that it uses.
        arrival_span: seconds from the first arrival to the last.
        think_time_p50: seconds, median over later turns; None if there is none.
        capacity_bytes: that the recipe names; None without a recipe.
        caveats: of the recipe.
        notes: what the reader of the source noted, and how the trace was made.
        sha256: of everything that a simulation can depend on, except the arrival model.
    """

    trace: str
    title: str
    synthetic: bool | None
    source: str
    licence: str
    tokenizer: str
    format: str
    block_size: int
    requests: int
    sessions: int
    turns: dict[str, float]
    input_tokens: dict[str, float]
    output_tokens: dict[str, float]
    total_input_tokens: int
    total_output_tokens: int
    distinct_tokens: int
    seen_tokens: int
    seen_share: float
    nodes: int
    arrivals: dict[str, Any]
    arrival_span: float
    think_time_p50: float | None
    capacity_bytes: int | None
    caveats: list[str]
    notes: dict[str, Any]
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain data for JSON."""
        return dataclasses.asdict(self)


def _distribution(values: NDArray[np.int32] | NDArray[np.int64]) -> dict[str, float]:
    """Return mean, extremes and quantiles; every quantile is a value that occurs."""
    points = np.percentile(values, list(QUANTILES.values()), method="inverted_cdf")
    quantiles = {name: int(q) for name, q in zip(QUANTILES, points, strict=True)}
    return {
        "mean": float(values.mean()),
        "min": int(values.min()),
        **quantiles,
        "max": int(values.max()),
    }


def infinite_reuse(workload: Workload) -> tuple[NDArray[np.int64], int]:
    """Return what an infinite cache sees: (tokens of each input shown before, distinct tokens).

    The first is int64 (n,), in processing order.
    """
    trace = workload.trace
    seen = np.empty(workload.requests, np.int64)
    flags = np.zeros(trace.parent.size, np.uint8)
    flags[ROOT] = SEEN
    nodes = (trace.parent, trace.depth, trace.input_node, trace.end_node)
    return seen, int(reuse(*nodes, workload.order, flags, seen))


def describe(workload: Workload) -> Description:
    """Return the facts about a workload. O(nodes + requests)."""
    trace, rows, recipe = workload.trace, workload.order, workload.recipe
    provenance: Mapping[str, Any] = trace.provenance
    inputs = trace.input_tokens[rows]
    outputs = trace.output_tokens[rows]
    seen_by_request, distinct = infinite_reuse(workload)
    seen = int(seen_by_request.sum())
    total = int(inputs.sum(dtype=np.int64))
    later = trace.turn[rows] > 0
    arrivals = {k: v for k, v in dataclasses.asdict(workload.arrivals).items() if v is not None}
    apart = (
        "title",
        "caveats",
        "source",
        "licence",
        "tokenizer",
        "format",
        "block_size",
        "synthetic",
    )
    return Description(
        trace=workload.name,
        title=recipe.title if recipe else workload.name,
        synthetic=recipe.synthetic if recipe else provenance.get("synthetic"),
        source=recipe.source if recipe else str(provenance.get("source", "")),
        licence=recipe.licence if recipe else str(provenance.get("licence", "")),
        tokenizer=str(provenance.get("tokenizer", "")),
        format=str(provenance.get("format", "")),
        block_size=int(provenance.get("block_size", 1)),
        requests=workload.requests,
        sessions=workload.sessions,
        turns=_distribution(np.bincount(trace.session[rows])),
        input_tokens=_distribution(inputs),
        output_tokens=_distribution(outputs),
        total_input_tokens=total,
        total_output_tokens=int(outputs.sum(dtype=np.int64)),
        distinct_tokens=distinct,
        seen_tokens=seen,
        seen_share=seen / total,
        nodes=int(trace.parent.size),
        arrivals=arrivals,
        arrival_span=float(workload.arrival.max() - workload.arrival.min()),
        think_time_p50=float(np.median(workload.think_time[later])) if later.any() else None,
        capacity_bytes=recipe.capacity if recipe else None,
        caveats=list(recipe.caveats) if recipe else [],
        notes={k: v for k, v in provenance.items() if k not in apart},
        sha256=trace.sha256,
    )


def heading(description: Description) -> str:
    """Return the title; it says SYNTHETIC where the requests were generated."""
    said = "SYNTHETIC" in description.title
    return (
        f"SYNTHETIC: {description.title}"
        if description.synthetic and not said
        else description.title
    )


def _made_of(description: Description) -> dict[str, str]:
    generated = {
        True: "yes, the requests were generated",
        False: "no",
        None: "not said by the source",
    }
    blocks = f"in blocks of {description.block_size} tokens" if description.block_size > 1 else ""
    facts = {
        "source": description.source,
        "licence": description.licence,
        "synthetic": generated[description.synthetic],
        "format": description.format,
        "tokenizer": description.tokenizer,
        "sharing seen": blocks,
    }
    return {name: text for name, text in facts.items() if text}


def _size(description: Description) -> dict[str, str]:
    d = description
    model = ", ".join(f"{name} {value}" for name, value in d.arrivals.items())
    facts = {
        "requests": f"{d.requests:,} in {counted(d.sessions, 'session')}",
        "input tokens": f"{d.total_input_tokens:,}",
        "output tokens": f"{d.total_output_tokens:,}",
        "distinct tokens": f"{d.distinct_tokens:,}",
        "seen before": f"{d.seen_tokens:,} input tokens ({d.seen_share:.1%}): the bound of an"
        " infinite cache",
        "nodes": f"{d.nodes:,} in the prefix index",
        "arrivals": f"{model}; {d.arrival_span:,.0f} s from the first to the last",
    }
    if d.think_time_p50 is not None:
        facts["think time"] = f"{d.think_time_p50:.3g} s, median of later turns"
    if d.capacity_bytes is not None:
        facts["capacity"] = f"{format_bytes(d.capacity_bytes)}, where none is named"
    return facts | {"sha256": d.sha256}


def _facts(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return table


def _distributions(description: Description) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    columns = list(description.input_tokens)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in (
        ("turns / session", description.turns),
        ("input / request", description.input_tokens),
        ("output / request", description.output_tokens),
    ):
        table.add_row(name, *(f"{values[c]:,.{1 if c == 'mean' else 0}f}" for c in columns))
    return table


def print_description(description: Description, console: Console) -> None:
    """Print the facts as tables."""
    notes = {name: str(value) for name, value in description.notes.items() if value not in ({}, "")}
    parts: list[RenderableType] = [
        Text(heading(description), style="bold"),
        *(Text(f"caveat: {caveat}") for caveat in description.caveats),
        Text(),
        _facts(_made_of(description)),
        Text(),
        _facts(_size(description)),
        Text(),
        _distributions(description),
        Text(),
        Text("How it was made", style="bold"),
        _facts(notes),
    ]
    console.print(Group(*parts), width=min(console.width, _WIDEST))
