"""Blocks of a cache that never evicts: of how many is the KV ever reused, and of how many the state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.figures.page import Page
from marconi_sim.figures.rows import Rows
from marconi_sim.figures.style import looks
from marconi_sim.figures.words import trace_text
from marconi_sim.sweeps.runs import Run
from marconi_sim.trace.load import Workload, open_trace, schedule

PARTS = {"KV": "KV of blocks", "state": "recurrent states of blocks"}


class Reuse(NamedTuple):
    """Blocks of one run.

    stored: distinct blocks that were ever stored.
    kv: how many of them had their KV reused at least once.
    state: how many of them had their state reused at least once.
    """

    stored: int
    kv: int
    state: int


def count_reuse(workload: Workload, block: int, reused: NDArray[np.int64]) -> Reuse:
    """Count what was reused of the blocks of a cache that never evicted.

    A hit of n blocks reuses the KV of the n leading blocks of the input, but only the last one's state: that is where
    the prefill goes on from. A block belongs to the edge of the index on which it ends.

    Args:
        workload: what was replayed.
        block: tokens of a block.
        reused: int64 (n,). Reused tokens of each request in processing order, a multiple of `block`.
    """
    trace = workload.trace
    parent, depth = trace.parent.tolist(), trace.depth.tolist()
    top = [0] + [depth[up] // block for up in parent[1:]]  # blocks above each edge
    stored = [False] * len(parent)
    kv = [0] * len(parent)
    states = set()
    for row, tokens in zip(workload.order, reused.tolist(), strict=True):
        node = int(trace.end_node[row])
        while node and not stored[node]:
            stored[node] = True
            node = parent[node]
        node = int(trace.input_node[row])
        hit = tokens // block
        while node:
            here = min(depth[node] // block, hit) - top[node]
            if here > 0:
                if top[node] + here == hit:
                    states.add((node, hit))
                kv[node] = max(kv[node], here)
            node = parent[node]
    total = sum(depth[n] // block - top[n] for n in range(1, len(parent)) if stored[n])
    return Reuse(total, sum(kv), len(states))


def reuse_of(rows: Rows, run: Run) -> Reuse:
    """Return what a run of a block policy reused, which must not have evicted anything."""
    of = run.configuration.schedule
    name, trace, recipe = open_trace(of.trace, rows.plan.search)
    workload = schedule(trace, of.arrivals, name=name, sessions=of.sessions, recipe=recipe)
    reused = rows.requests(run.key, "reused_tokens").reused_tokens.to_numpy(np.int64)
    return count_reuse(workload, int(dict(run.params)["block_size"]), reused)


def draw(page: Page, rows: Rows) -> None:
    """Draw the shares by block size, one panel per trace."""
    names = list(rows.frame.trace.unique())
    styles = looks(PARTS)
    for axes, name in zip(page.panels, names, strict=True):
        frame = rows.frame[rows.frame.trace == name]
        found = [
            (row.settings["param_block_size"], reuse_of(rows, row.run))
            for row in rows.plan.rows
            if row.settings["trace"] == name
        ]
        for i, (part, label) in enumerate(PARTS.items()):
            shares = [100 * getattr(reuse, part.lower()) / reuse.stored for _, reuse in found]
            bars = axes.bar(
                np.arange(len(found)) + (i - 0.5) * 0.42, shares, 0.4, label=label,
                color=styles[part].colour, hatch=styles[part].hatch, edgecolor="white", linewidth=0,
            )  # fmt: skip
            axes.bar_label(bars, [f"{share:.2g}" for share in shares], fontsize=8, padding=2)
        axes.set_xticks(range(len(found)), [str(size) for size, _ in found])
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
        axes.set_title(trace_text(name, bool(frame.synthetic.any()), " "))
        axes.set_xlabel("block size, tokens")
    page.panels[0].set_ylabel("stored blocks reused at least once, %")
    page.legend()
