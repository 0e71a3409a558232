"""A smaller workload with the shape of a larger one: its first requests, with all lengths scaled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marconi_sim.base.errors import UsageError
from marconi_sim.core.index.build import ROOT
from marconi_sim.trace.load import Workload


def reduce_workload(
    workload: Workload, requests: int | None = None, longest: int | None = None
) -> Workload:
    """Return the first requests of a workload in processing order, with all lengths scaled down by one factor.

    What is shared stays shared and what differs differs: every edge of the index keeps at least one token. The index
    holds the nodes on the paths of these requests only.

    Args:
        workload: a whole one.
        requests: how many are kept; None: all.
        longest: tokens that the longest input has afterwards, more or less; None, or more than it has: as it is.

    Raises:
        UsageError: a number below 1.
    """
    for name, value in (("requests", requests), ("longest", longest)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value}: expected a whole number from 1")
    order = workload.order[:requests]
    has = int(workload.trace.input_tokens[order].max())
    scale = min(1.0, longest / has) if longest else 1.0
    if order.size == workload.requests and scale == 1:
        return workload
    trace = workload.trace
    used = np.zeros(trace.parent.size, bool)
    used[ROOT] = True
    for node in trace.end_node[order].tolist():
        while not used[node]:
            used[node] = True
            node = int(trace.parent[node])
    kept = np.flatnonzero(used)
    new_number = np.cumsum(used, dtype=np.int32) - 1
    parent = np.where(kept == ROOT, -1, new_number[trace.parent[kept]]).astype(np.int32)
    edge = trace.depth[kept] - np.where(kept == ROOT, 0, trace.depth[trace.parent[kept]])
    scaled_edge = np.maximum(1, np.rint(edge * scale)).astype(np.int64)
    depth = np.zeros(kept.size, np.int64)
    for node in range(1, kept.size):  # parents come before their children
        depth[node] = depth[parent[node]] + scaled_edge[node]
    reduced = replace(
        trace,
        parent=parent,
        depth=depth.astype(np.int32),
        session=trace.session[order],
        turn=trace.turn[order],
        input_node=new_number[trace.input_node[order]],
        end_node=new_number[trace.end_node[order]],
        arrival=trace.arrival[order],
        think_time=trace.think_time[order],
        words=trace.words[order],
    )
    words = [f"first {order.size:,} requests"] if order.size < workload.requests else []
    if scale != 1:
        words.append(f"lengths x {scale:.3g}")
    return replace(
        workload,
        name=f"{workload.name}[{', '.join(words)}]",
        trace=reduced,
        order=np.arange(order.size, dtype=np.int64),
        arrival=workload.arrival[: order.size],
        think_time=workload.think_time[: order.size],
        sessions=int(np.unique(reduced.session).size),
    )
