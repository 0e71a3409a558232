"""A radix-tree cache as a marking of the prefix index (DESIGN section 5).

The cache's tree is part of the index: KV is resident on whole edges of the index, and every node of the cache's tree
lies at a node of the index, because sequences split and end nowhere else. So the cache is a few flat arrays over the
index's nodes. Each node knows how many of its children are resident and the XOR of their numbers: where there is one,
that is its number. Between two nodes of the cache's tree the index may have further nodes; all of them have exactly one
resident child, so "the cache node below" and "the cache node above" are walks along one path.

A node of the cache's tree is called a *cache node* here, to tell it from a node of the index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.index.requests import Index
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import BYPASSED, KV_TOKENS, STATES
from marconi_sim.core.radix import journal as events
from marconi_sim.core.radix.journal import Journal, new_journal, note
from marconi_sim.core.shape import Shape
from marconi_sim.core.victims import order as recent
from marconi_sim.core.victims.order import Order, copy_order, new_order

# Bits of a node's flags, beside SEEN.
RESIDENT = np.uint8(2)  # the KV of the edge above the node is in the cache
WAS_RESIDENT = np.uint8(4)  # it is or once was
NODE = np.uint8(8)  # a cache node
STATE = np.uint8(16)  # a cache node that holds a recurrent state
HAD_STATE = np.uint8(32)  # it does or once did
CHANGED = np.uint8(64)  # listed in `RadixCache.changed`


class Rules(NamedTuple):
    """What a policy declares: DESIGN section 5.

    branch_point, input_end, sequence_end: bool. Where a state is checkpointed.
    max_children: int. An entry may be evicted while it has at most so many children: 0 (leaves) or 1.
    touch_path: bool. A touch refreshes every cache node on the path, or only the node whose state was reused.
    normalised: bool. Recency and value reach the score min-max normalised over the entries that may be evicted.
    """

    branch_point: bool
    input_end: bool
    sequence_end: bool
    max_children: int
    touch_path: bool
    normalised: bool


class RadixCache(NamedTuple):
    """The state of a radix-tree cache, all of it.

    flags: uint8 (nodes,). The bits above. RESIDENT is set where a cache node is or below which one is.
    children: int32 (nodes,). Resident children in the index.
    child_xor: int32 (nodes,). XOR of their numbers.
    time: float64 (nodes,). Last touch of a cache node.
    created: int32 (nodes,). Serial number of a cache node's creation.
    hits: int32 (nodes,). Reuses of the state since the creation.
    slot: int32 (nodes,). Place in `order`, NONE if it has none.
    order: cache nodes by last touch.
    changed: int32 (as many as `order` has slots,). Cache nodes whose value must be computed anew before the next search
        for a victim: they were touched, or their edge or their children changed. `changed_count` int64 (1,) tells how
        many there are.
    totals: int64 (5,). As in `Outcome`, shared with it.
    clock: float64 (4,). See NOW, FLOOR, CREATED and NOT_A_NUMBER.
    journal: what the last request did, if the cache keeps one.
    """

    flags: NDArray[np.uint8]
    children: NDArray[np.int32]
    child_xor: NDArray[np.int32]
    time: NDArray[np.float64]
    created: NDArray[np.int32]
    hits: NDArray[np.int32]
    slot: NDArray[np.int32]
    order: Order
    changed: NDArray[np.int32]
    changed_count: NDArray[np.int64]
    totals: NDArray[np.int64]
    clock: NDArray[np.float64]
    journal: Journal


# Positions in `RadixCache.clock`: time, score of the last victim, next serial number of a cache node, and whether a
# policy's hook ever returned something that is not a finite number (1) or not (0).
NOW, FLOOR, CREATED, NOT_A_NUMBER = range(4)


def new_radix_cache(
    nodes: int, entries: int, totals: NDArray[np.int64], journal: bool = False
) -> RadixCache:
    """Return an empty cache over an index of `nodes` nodes that never holds more than `entries` cache nodes.

    `entries` is 0 for a cache that can never overflow: it keeps no order of touches. With `journal` every request's
    events are written down.
    """
    flags = np.zeros(nodes, np.uint8)
    flags[ROOT] = SEEN | RESIDENT | WAS_RESIDENT | NODE
    order = new_order(entries)
    return RadixCache(
        flags=flags,
        children=np.zeros(nodes, np.int32),
        child_xor=np.zeros(nodes, np.int32),
        time=np.zeros(nodes, np.float64),
        created=np.zeros(nodes, np.int32),
        hits=np.zeros(nodes, np.int32),
        slot=np.full(nodes, NONE, np.int32),
        order=order,
        changed=np.empty(order.node.size, np.int32),
        changed_count=np.zeros(1, np.int64),
        totals=totals,
        clock=np.zeros(4, np.float64),
        journal=new_journal(min(nodes, entries or nodes) if journal else 0),
    )


def copy_radix_cache(cache: RadixCache) -> RadixCache:
    """Return an independent copy; it keeps no journal."""
    count = cache.changed_count[0]
    changed = np.empty_like(cache.changed)
    changed[:count] = cache.changed[:count]
    order = copy_order(cache.order)
    arrays = {
        name: array.copy()
        for name, array in cache._asdict().items()
        if name not in ("order", "changed", "journal")
    }
    return RadixCache(order=order, changed=changed, journal=new_journal(0), **arrays)


@inner
def bytes_held(cache: RadixCache, shape: Shape) -> int:
    """Return the bytes that the cache holds now."""
    return shape.kv_bytes * cache.totals[KV_TOKENS] + shape.state_bytes * cache.totals[STATES]


@inner
def cache_node_above(index: Index, cache: RadixCache, node: int) -> int:
    """Return the nearest cache node above `node` (not the root). O(index nodes between)."""
    node = index.parent[node]
    while not cache.flags[node] & NODE:
        node = index.parent[node]
    return node


@inner
def only_cache_node_below(cache: RadixCache, node: int) -> int:
    """Return the nearest cache node below `node`, which has one resident child. O(index nodes between)."""
    node = cache.child_xor[node]
    while not cache.flags[node] & NODE:
        node = cache.child_xor[node]
    return node


@inner
def _mark_changed(cache: RadixCache, node: int) -> None:
    """List a cache node that has a place in the order for a new value."""
    if cache.slot[node] == NONE or cache.flags[node] & CHANGED:
        return
    # An entry is listed once, and none goes while it is listed but those that `remove` drops: there is room.
    count = cache.changed_count[0]
    cache.changed[count] = node
    cache.changed_count[0] = count + 1
    cache.flags[node] |= CHANGED


@inner
def touch(cache: RadixCache, node: int) -> None:
    """Set a cache node's time to now."""
    cache.time[node] = cache.clock[NOW]
    recent.append(cache.order, cache.slot, node, cache.clock[NOW])
    _mark_changed(cache, node)


@inner
def _touch_path(index: Index, cache: RadixCache, node: int) -> None:
    """Set the time of every cache node from the root (excluded) to `node` (included) to now."""
    while node != ROOT:
        if cache.flags[node] & NODE:
            touch(cache, node)
        node = index.parent[node]


@inner
def look_up(index: Index, cache: RadixCache, rules: Rules, input_node: int) -> tuple[int, int, int]:
    """Look an input up and touch what the policy says.

    Returns the index nodes (matched, reused, branch point): where the resident KV ends, whose state is reused (the
    root: none), and where inserting the input would create a cache node inside an edge (NONE: nowhere).
    """
    node = input_node
    while not cache.flags[node] & RESIDENT:
        node = index.parent[node]
    matched = node
    branch = NONE if cache.flags[node] & NODE else node
    while node != ROOT and not cache.flags[node] & STATE:
        node = index.parent[node]
    if node != ROOT:
        cache.hits[node] += 1
    if rules.touch_path:
        _touch_path(index, cache, matched)
    elif node != ROOT:
        touch(cache, node)
    return matched, node, branch


@inner
def _make_cache_node(cache: RadixCache, node: int) -> None:
    """Make a resident index node a cache node without a state: a new leaf, or a split of the edge it lies on."""
    cache.flags[node] |= NODE
    cache.created[node] = np.int32(cache.clock[CREATED])
    cache.clock[CREATED] += 1
    cache.time[node] = cache.clock[NOW]
    cache.hits[node] = 0
    if cache.children[node] == 1:
        below = only_cache_node_below(cache, node)
        note(cache.journal, events.SPLIT, node, below)
        _mark_changed(cache, below)  # its edge is shorter now


@inner
def _merge_into_child(cache: RadixCache, node: int) -> None:
    """Make a cache node with one child part of that child's edge; the child keeps its own time."""
    recent.drop(cache.order, cache.slot, node)
    cache.flags[node] &= ~NODE
    below = only_cache_node_below(cache, node)
    note(cache.journal, events.MERGE, node, below)
    _mark_changed(cache, below)


@inner
def _checkpoint(cache: RadixCache, node: int) -> None:
    """Store a recurrent state at a resident index node, which becomes a cache node if it is none."""
    if not cache.flags[node] & NODE:
        _make_cache_node(cache, node)
    if not cache.flags[node] & STATE:
        cache.flags[node] |= STATE | HAD_STATE
        cache.totals[STATES] += 1
        note(cache.journal, events.CHECKPOINT, node)


@inner
def _add_kv(index: Index, cache: RadixCache, end_node: int) -> int:
    """Make the whole path to `end_node` resident and its new part, if any, a leaf.

    Returns the node where the path left the resident tree, `end_node` if it did not.
    """
    left = end_node
    while not cache.flags[left] & RESIDENT:
        left = index.parent[left]
    if left == end_node:
        return left
    if not cache.flags[left] & NODE:
        _make_cache_node(cache, left)
    cache.totals[KV_TOKENS] += index.depth[end_node] - index.depth[left]
    node = end_node
    while node != left:
        up = index.parent[node]
        cache.flags[node] |= RESIDENT | WAS_RESIDENT
        cache.children[up] += 1
        cache.child_xor[up] ^= node
        node = up
    _make_cache_node(cache, end_node)
    note(cache.journal, events.LEAF, end_node, left)
    _mark_changed(cache, left)  # it has one more child
    return left


@inner
def insert(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    input_node: int,
    end_node: int,
    branch: int,
) -> bool:
    """Insert a finished sequence; return whether it was admitted. Nothing is evicted here.

    The node at the sequence's end is left out of the order: `evict_until_it_fits` puts it back.
    """
    if shape.kv_bytes * index.depth[end_node] + shape.state_bytes > capacity:
        cache.totals[BYPASSED] += 1
        return False
    recent.drop(cache.order, cache.slot, end_node)
    left = _add_kv(index, cache, end_node)
    if rules.branch_point and branch != NONE:
        _checkpoint(cache, branch)
        if branch != end_node:
            touch(cache, branch)
    if rules.input_end:
        _checkpoint(cache, input_node)
        if input_node != end_node:
            touch(cache, input_node)
    if rules.sequence_end:
        _checkpoint(cache, end_node)
    stateless = cache.flags[left] & (NODE | STATE) == NODE
    if left != ROOT and stateless and cache.children[left] == 1:
        _merge_into_child(cache, left)  # a leaf without a state that the sequence has extended
    if rules.touch_path:
        _touch_path(index, cache, index.parent[end_node])
    if cache.flags[end_node] & NODE:
        cache.time[end_node] = cache.clock[NOW]
    return True


@inner
def remove(index: Index, cache: RadixCache, node: int) -> None:
    """Evict a cache node that has at most one child (DESIGN section 5, Removal)."""
    while True:
        if cache.flags[node] & STATE:
            cache.flags[node] &= ~STATE
            cache.totals[STATES] -= 1
            note(cache.journal, events.DROP_STATE, node)
        if cache.children[node] == 1:
            _merge_into_child(cache, node)
            return
        recent.drop(cache.order, cache.slot, node)
        note(cache.journal, events.DROP_LEAF, node)
        cache.flags[node] &= ~NODE
        while not cache.flags[node] & NODE:
            up = index.parent[node]
            cache.flags[node] &= ~RESIDENT
            cache.totals[KV_TOKENS] -= index.depth[node] - index.depth[up]
            cache.children[up] -= 1
            cache.child_xor[up] ^= node
            node = up
        # A cache node without a state is there to hold two children together; with one left it goes too.
        if node == ROOT or cache.flags[node] & STATE or cache.children[node] > 1:
            _mark_changed(cache, node)
            return
