"""The changes that a cache's tree can go through: each keeps the accounts, the order of touches and the journal."""

from __future__ import annotations

import numpy as np

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import KV_TOKENS, STATES
from marconi_sim.core.radix import journal as events
from marconi_sim.core.radix.cache import (
    CHANGED,
    CREATED,
    HAD_STATE,
    LISTED,
    NODE,
    NOW,
    RESIDENT,
    STATE,
    WAS_RESIDENT,
    RadixCache,
    only_cache_node_below,
)
from marconi_sim.core.radix.journal import note
from marconi_sim.core.victims import order as recent


@inner
def mark_changed(cache: RadixCache, node: int) -> None:
    """List a cache node that has a place in the order for a new value."""
    if cache.slot[node] == NONE or cache.flags[node] & CHANGED:
        return
    # An entry is listed once, and none goes while it is listed but those that `remove` drops: there is room.
    count = cache.sizes[LISTED]
    cache.changed[count] = node
    cache.sizes[LISTED] = count + 1
    cache.flags[node] |= CHANGED


@inner
def touch(cache: RadixCache, node: int) -> None:
    """Set a cache node's time to now."""
    cache.time[node] = cache.clock[NOW]
    recent.append(cache.order, cache.slot, node, cache.clock[NOW])
    mark_changed(cache, node)


@inner
def touch_path(cache: RadixCache, node: int) -> None:
    """Set the time of every cache node from the root (excluded) to `node` (included) to now."""
    while node != ROOT:
        if cache.flags[node] & NODE:
            touch(cache, node)
        node = cache.prefix_index.parent[node]


@inner
def make_cache_node(cache: RadixCache, node: int) -> None:
    """Make a resident index node a cache node without a state: a new leaf, or a split of the edge it lies on."""
    cache.flags[node] |= NODE
    cache.created[node] = np.int32(cache.clock[CREATED])
    cache.clock[CREATED] += 1
    cache.time[node] = cache.clock[NOW]
    cache.hits[node] = 0
    if cache.children[node] == 1:
        below = only_cache_node_below(cache, node)
        note(cache.journal, events.SPLIT, node, below)
        mark_changed(cache, below)  # its edge is shorter now


@inner
def merge_into_child(cache: RadixCache, node: int) -> None:
    """Make a cache node with one child part of that child's edge; the child keeps its own time."""
    recent.drop(cache.order, cache.slot, node)
    cache.flags[node] &= ~NODE
    below = only_cache_node_below(cache, node)
    note(cache.journal, events.MERGE, node, below)
    mark_changed(cache, below)


@inner
def checkpoint(cache: RadixCache, node: int) -> None:
    """Store a recurrent state at a resident index node, which becomes a cache node if it is none."""
    if not cache.flags[node] & NODE:
        make_cache_node(cache, node)
    if not cache.flags[node] & STATE:
        cache.flags[node] |= STATE | HAD_STATE
        cache.totals[STATES] += 1
        note(cache.journal, events.CHECKPOINT, node)


@inner
def add_kv(cache: RadixCache, end_node: int) -> int:
    """Make the whole path to `end_node` resident and its new part, if any, a leaf.

    Returns the node where the path left the resident tree, `end_node` if it did not.
    """
    parent, depth = cache.prefix_index
    left = end_node
    while not cache.flags[left] & RESIDENT:
        left = parent[left]
    if left == end_node:
        return left
    if not cache.flags[left] & NODE:
        make_cache_node(cache, left)
    cache.totals[KV_TOKENS] += depth[end_node] - depth[left]
    node = end_node
    while node != left:
        up = parent[node]
        cache.flags[node] |= RESIDENT | WAS_RESIDENT
        cache.children[up] += 1
        cache.child_xor[up] ^= node
        node = up
    make_cache_node(cache, end_node)
    note(cache.journal, events.LEAF, end_node, left)
    mark_changed(cache, left)  # it has one more child
    return left


@inner
def remove(cache: RadixCache, node: int) -> None:
    """Evict a cache node that has at most one child (DESIGN section 5, Removal)."""
    parent, depth = cache.prefix_index
    while True:
        if cache.flags[node] & STATE:
            cache.flags[node] &= ~STATE
            cache.totals[STATES] -= 1
            note(cache.journal, events.DROP_STATE, node)
        if cache.children[node] == 1:
            merge_into_child(cache, node)
            return
        recent.drop(cache.order, cache.slot, node)
        note(cache.journal, events.DROP_LEAF, node)
        cache.flags[node] &= ~NODE
        while not cache.flags[node] & NODE:
            up = parent[node]
            cache.flags[node] &= ~RESIDENT
            cache.totals[KV_TOKENS] -= depth[node] - depth[up]
            cache.children[up] -= 1
            cache.child_xor[up] ^= node
            node = up
        # A cache node without a state is there to hold two children together; with one left it goes too.
        if node == ROOT or cache.flags[node] & STATE or cache.children[node] > 1:
            mark_changed(cache, node)
            return
