"""A smaller workload with the shape of a larger one: its first requests, with all lengths scaled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marconi_sim.core.index import ROOT
from marconi_sim.errors import UsageError
from marconi_sim.trace.load import Workload


def reduce_workload(workload: Workload, requests: int | None, scale: float) -> Workload:
    """Return the first requests of a workload in processing order, with every edge of the index `scale` times as long.

    What is shared stays shared and what differs differs: an edge keeps at least one token. The index holds the nodes on
    the paths of these requests only.

    Raises:
        UsageError: less than one request, or a scale that is not above 0 and at most 1.
    """
    if requests is not None and requests < 1:
        raise UsageError(f"requests {requests}: expected a whole number from 1")
    if not 0 < scale <= 1:
        raise UsageError(f"scale {scale:g}: expected a number above 0 and at most 1")
    order = workload.order[:requests]
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
        words.append(f"lengths x {scale:g}")
    return replace(
        workload,
        name=f"{workload.name}[{', '.join(words)}]",
        trace=reduced,
        order=np.arange(order.size, dtype=np.int64),
        arrival=workload.arrival[: order.size],
        think_time=workload.think_time[: order.size],
        sessions=int(np.unique(reduced.session).size),
    )
