"""Invariants, recomputed from scratch after every request of a checked run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.jit import kernel
from marconi_sim.core.outcome import KV_TOKENS, STATES
from marconi_sim.core.radix.cache import (
    CHANGED,
    NODE,
    NODES,
    RESIDENT,
    STATE,
    RadixCache,
    fits,
)
from marconi_sim.core.victims.order import KEPT, TIME, WIDTH

# What each code means; position 0 is no complaint.
COMPLAINTS = (
    "",
    "reused <= matched <= input does not hold",
    "reused tokens and miss causes do not add up to the input",
    "a miss cause is negative",
    "the bytes accounted are not the bytes held",
    "the cache holds more than its capacity",
    "a node's resident children are not those it counts",
    "a cache node without a state has fewer than two children",
    "a state lies off the cache's tree, or an edge is resident with nothing below it",
    "the order of touches does not hold the cache's nodes",
)


@kernel
def audit_request(length: int, matched: int, reused: int, missed: NDArray[np.int32]) -> int:
    """Check one request's tokens; return 0 or a position in COMPLAINTS."""
    if not 0 <= reused <= matched <= length:
        return 1
    total = reused
    for tokens in missed:
        if tokens < 0:
            return 3
        total += tokens
    return 0 if total == length else 2


@kernel
def audit_radix(
    cache: RadixCache,
    children: NDArray[np.int32],
    child_xor: NDArray[np.int32],
) -> int:
    """Check a radix cache against a recount; return 0 or a position in COMPLAINTS. O(nodes).

    `children` and `child_xor`, int32 (nodes, marks included,), are for the recount; their content does not matter.
    """
    parent, depth = cache.prefix_index
    nodes = cache.sizes[NODES]
    children[:nodes] = 0
    child_xor[:nodes] = 0
    tokens = 0
    states = 0
    for node in range(1, nodes):
        flags = cache.flags[node]
        if flags & RESIDENT:
            up = parent[node]
            children[up] += 1
            child_xor[up] ^= node
            tokens += depth[node] - depth[up]
        if flags & STATE:
            states += 1
            if not flags & NODE:
                return 8
        if flags & NODE and not flags & RESIDENT:
            return 8
    if tokens != cache.totals[KV_TOKENS] or states != cache.totals[STATES]:
        return 4
    if not fits(cache):
        return 5
    for node in range(nodes):
        flags = cache.flags[node]
        if children[node] != cache.children[node] or child_xor[node] != cache.child_xor[node]:
            return 6
        stateless = node != ROOT and flags & (NODE | STATE) == NODE
        needs_state = cache.rules.sequence_end
        if stateless and (children[node] == 1 or (children[node] == 0 and needs_state)):
            return 7
        if flags & RESIDENT and not flags & NODE and children[node] != 1:
            return 8
        slot = cache.slot[node]
        if slot != NONE:
            if not flags & NODE or cache.order.node[slot] != node:
                return 9
            if cache.order.time[slot] != cache.time[node]:
                return 9
            competes = cache.order.tree[cache.order.size[WIDTH] + slot, TIME] != np.inf
            if not flags & CHANGED and competes != (children[node] <= cache.rules.max_children):
                return 9
            continue
        candidate = node != ROOT and flags & NODE and children[node] <= cache.rules.max_children
        if candidate and cache.order.size[KEPT]:
            return 9
    return 0
