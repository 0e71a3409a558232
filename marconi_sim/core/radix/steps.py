"""What every driver of a cache calls: look up, and insert (DESIGN section 6b); making room is in `evict.py`."""

from __future__ import annotations

from typing import NamedTuple

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import BYPASSED
from marconi_sim.core.radix.cache import (
    NODE,
    NOW,
    RESIDENT,
    STATE,
    RadixCache,
    can_ever_hold,
)
from marconi_sim.core.radix.plan import Planner
from marconi_sim.core.radix.tree import (
    add_kv,
    checkpoint,
    merge_into_child,
    touch,
    touch_path,
)
from marconi_sim.core.victims import order as recent


class Found(NamedTuple):
    """What a look-up finds, nodes of the index.

    matched: where the resident KV of the input ends.
    reused: whose state is reused; the root: none.
    branch: where inserting the input would create a cache node inside an edge; NONE: nowhere.
    """

    matched: int
    reused: int
    branch: int


@inner
def match(cache: RadixCache, input_node: int) -> Found:
    """Return what the cache holds of an input; changes nothing. O(nodes on its path)."""
    parent = cache.prefix_index.parent
    node = input_node
    while not cache.flags[node] & RESIDENT:
        node = parent[node]
    matched = node
    branch = NONE if cache.flags[node] & NODE else node
    while node != ROOT and not cache.flags[node] & STATE:
        node = parent[node]
    return Found(matched, node, branch)


@inner
def look_up(cache: RadixCache, input_node: int) -> Found:
    """Look an input up, count the reuse and touch what the policy says."""
    found = match(cache, input_node)
    if found.reused != ROOT:
        cache.hits[found.reused] += 1
    if cache.rules.touch_path:
        touch_path(cache, found.matched)
    elif found.reused != ROOT:
        touch(cache, found.reused)
    return found


@inner
def insert(
    cache: RadixCache, planner: Planner, input_node: int, end_node: int, branch: int
) -> bool:
    """Insert a finished sequence; return whether it was admitted. Nothing is evicted here.

    Beside the states that the rules name, those that are planned are stored. The node at the
    sequence's end is left out of the order: `evict_until_it_fits` puts it back.
    """
    rules, shape = cache.rules, cache.shape
    kv_bytes = shape.kv_bytes * cache.prefix_index.depth[end_node]
    if not can_ever_hold(cache.budget, kv_bytes, shape.state_bytes):
        cache.totals[BYPASSED] += 1
        return False
    recent.drop(cache.order, cache.slot, end_node)
    left = add_kv(cache, end_node)
    if rules.branch_point and branch != NONE:
        checkpoint(cache, branch)
        if branch != end_node:
            touch(cache, branch)
    if rules.input_end:
        checkpoint(cache, input_node)
        if input_node != end_node:
            touch(cache, input_node)
    if rules.sequence_end:
        checkpoint(cache, end_node)
    planner.store(cache, end_node)
    stateless = cache.flags[left] & (NODE | STATE) == NODE
    if left != ROOT and stateless and cache.children[left] == 1:
        merge_into_child(cache, left)  # a leaf without a state that the sequence has extended
    if rules.touch_path:
        touch_path(cache, cache.prefix_index.parent[end_node])
    if cache.flags[end_node] & NODE:
        cache.time[end_node] = cache.clock[NOW]
    return True
