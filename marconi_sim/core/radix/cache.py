"""A radix-tree cache as a marking of the prefix index (DESIGN section 5).

The cache's tree is part of the index: KV is resident on whole edges of the index, and every node of the cache's tree
lies at a node of the index. So the cache is a few flat arrays over the index's nodes. Each node knows how many of its
children are resident and the XOR of their numbers: where there is one, that is its number. Between two nodes of the
cache's tree the index may have further nodes; all of them have exactly one resident child, so "the cache node below"
and "the cache node above" are walks along one path.

Sequences split and end at nodes of the index. A policy that stores states elsewhere gets a copy of the index with room
for nodes inside edges (`marks.py`); everything else is the same.

A node of the cache's tree is called a *cache node* here, to tell it from a node of the index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.index.requests import Index
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import KV_TOKENS, STATES
from marconi_sim.core.radix.journal import Journal, new_journal
from marconi_sim.core.shape import Shape
from marconi_sim.core.victims.order import Order, copy_order, new_order

# Bits of a node's flags, beside SEEN.
RESIDENT = np.uint8(2)  # the KV of the edge above the node is in the cache
WAS_RESIDENT = np.uint8(4)  # it is or once was
NODE = np.uint8(8)  # a cache node
STATE = np.uint8(16)  # a cache node that holds a recurrent state
HAD_STATE = np.uint8(32)  # it does or once did
CHANGED = np.uint8(64)  # listed in `RadixCache.changed`

UNLIMITED = 2**63 - 1


class Rules(NamedTuple):
    """What a policy declares: DESIGN section 5.

    branch_point, input_end, sequence_end: bool. Where a state is checkpointed, as far as a node of the index is there.
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


class Positions(NamedTuple):
    """Where states are checkpointed beside those places that `Rules` names: tokens from the start of a sequence.

    branch_point, input_end, sequence_end: bool. As in `Rules`, but rounded down to the grid.
    interval: int. Every so many tokens from the start, beyond what was reused, up to the sequence's end; 0: none.
    chunk: int. The ends of chunks of so many tokens in which the rest of the input is computed; 0: none.
    grid: int. Every position but the interval's is rounded down to a multiple of it; 1: no rounding. What falls below
        the reused tokens is no checkpoint: its state is not computed.
    """

    branch_point: bool
    input_end: bool
    sequence_end: bool
    interval: int
    chunk: int
    grid: int


NOWHERE_ELSE = Positions(False, False, False, 0, 0, 1)


class Budget(NamedTuple):
    """Bytes that may be held: of KV and states together, of KV, of states. UNLIMITED where there is no such limit.

    One pool limits the first, two pools the other two.
    """

    together: int
    kv: int
    states: int


class RadixCache(NamedTuple):
    """A radix-tree cache, all of it, and what it is a cache of.

    prefix_index: the prefix index; the cache's own copy if states lie inside edges.
    shape: the model's costs.
    rules, positions: what the policy declares.
    budget: bytes.
    flags: uint8 (nodes,). The bits above. RESIDENT is set where a cache node is or below which one is.
    children: int32 (nodes,). Resident children in the index.
    child_xor: int32 (nodes,). XOR of their numbers.
    time: float64 (nodes,). Last touch of a cache node.
    created: int32 (nodes,). Serial number of a cache node's creation.
    hits: int32 (nodes,). Reuses of the state since the creation.
    slot: int32 (nodes,). Place in `order`, NONE if it has none.
    order: cache nodes by last touch.
    changed: int32 (as many as `order` has slots,). Cache nodes whose value must be computed anew before the next search
        for a victim: they were touched, or their edge or their children changed.
    plan: int32 (positions of a request,). Nodes where the request at work stores states beside those that the rules
        name, deepest last.
    sizes: int64 (3,). See NODES, LISTED and PLANNED.
    totals: int64 (5,). As in `Outcome`, shared with it.
    clock: float64 (5,). See NOW, FLOOR, CREATED, NOT_A_NUMBER and DISAGREED.
    journal: what the last request did, if the cache keeps one.
    """

    prefix_index: Index
    shape: Shape
    rules: Rules
    positions: Positions
    budget: Budget
    flags: NDArray[np.uint8]
    children: NDArray[np.int32]
    child_xor: NDArray[np.int32]
    time: NDArray[np.float64]
    created: NDArray[np.int32]
    hits: NDArray[np.int32]
    slot: NDArray[np.int32]
    order: Order
    changed: NDArray[np.int32]
    plan: NDArray[np.int32]
    sizes: NDArray[np.int64]
    totals: NDArray[np.int64]
    clock: NDArray[np.float64]
    journal: Journal


# Positions in `RadixCache.sizes`: nodes of the index in use, marks included; entries of `changed`; entries of `plan`.
NODES, LISTED, PLANNED = range(3)

# Positions in `RadixCache.clock`: time, score of the last victim, next serial number of a cache node, and two faults, 1
# once they happened: a hook returned something that is not a finite number; search and scan found two victims.
NOW, FLOOR, CREATED, NOT_A_NUMBER, DISAGREED = range(5)


def _copy(array: NDArray[Any], used: int) -> NDArray[Any]:
    """Copy an array as far as it is in use: what is only reserved takes no memory."""
    made = np.empty_like(array)
    made[:used] = array[:used]
    return made


def new_radix_cache(
    index: Index,
    shape: Shape,
    rules: Rules,
    budget: Budget,
    entries: int,
    totals: NDArray[np.int64],
    *,
    positions: Positions = NOWHERE_ELSE,
    marks: int = 0,
    planned: int = 0,
    journal: bool = False,
) -> RadixCache:
    """Return an empty cache.

    Args:
        index: the prefix index, which is not changed.
        shape: the model's costs.
        rules: what the policy declares.
        budget: bytes.
        entries: how many cache nodes it may come to hold; 0 for a cache that can never overflow: it keeps no order.
        totals: int64 (5,), of the outcome.
        positions: where states lie beside those that the rules name.
        marks: how many nodes inside edges may come to be.
        planned: how many positions of one request `positions` may name.
        journal: whether every request's events are written down.
    """
    nodes = index.parent.size
    room = nodes + marks
    if planned:
        index = Index(*(np.append(array, np.empty(marks, array.dtype)) for array in index))
    flags = np.zeros(room, np.uint8)
    flags[ROOT] = SEEN | RESIDENT | WAS_RESIDENT | NODE
    slot = np.empty(room, np.int32)
    slot[:nodes] = NONE
    order = new_order(entries)
    return RadixCache(
        prefix_index=index,
        shape=shape,
        rules=rules,
        positions=positions,
        budget=budget,
        flags=flags,
        children=np.zeros(room, np.int32),
        child_xor=np.zeros(room, np.int32),
        time=np.zeros(room, np.float64),
        created=np.zeros(room, np.int32),
        hits=np.zeros(room, np.int32),
        slot=slot,
        order=order,
        changed=np.empty(order.node.size, np.int32),
        plan=np.empty(planned, np.int32),
        sizes=np.array([nodes, 0, 0], np.int64),
        totals=totals,
        clock=np.zeros(5, np.float64),
        journal=new_journal(min(room, entries or room) if journal else 0, planned),
    )


def copy_radix_cache(cache: RadixCache) -> RadixCache:
    """Return an independent copy; it keeps no journal."""
    nodes = cache.sizes[NODES]
    of_nodes = ("flags", "children", "child_xor", "time", "created", "hits", "slot")
    copies = {name: _copy(getattr(cache, name), nodes) for name in of_nodes}
    own = cache.prefix_index
    if cache.plan.size:  # it may have grown
        own = Index(*(_copy(array, nodes) for array in cache.prefix_index))
    return cache._replace(
        prefix_index=own,
        order=copy_order(cache.order),
        changed=_copy(cache.changed, cache.sizes[LISTED]),
        plan=np.empty_like(cache.plan),
        sizes=cache.sizes.copy(),
        totals=cache.totals.copy(),
        clock=cache.clock.copy(),
        journal=new_journal(0),
        **copies,
    )


@inner
def bytes_held(cache: RadixCache) -> int:
    """Return the bytes that the cache holds now."""
    totals, shape = cache.totals, cache.shape
    return shape.kv_bytes * totals[KV_TOKENS] + shape.state_bytes * totals[STATES]


@inner
def can_ever_hold(budget: Budget, kv_bytes: int, state_bytes: int) -> bool:
    """Tell whether so many bytes of KV and of states fit into an empty cache."""
    return (
        kv_bytes + state_bytes <= budget.together
        and kv_bytes <= budget.kv
        and state_bytes <= budget.states
    )


@inner
def fits(cache: RadixCache) -> bool:
    """Tell whether the cache holds no more than it may."""
    return can_ever_hold(
        cache.budget,
        cache.shape.kv_bytes * cache.totals[KV_TOKENS],
        cache.shape.state_bytes * cache.totals[STATES],
    )


@inner
def cache_node_above(cache: RadixCache, node: int) -> int:
    """Return the nearest cache node above `node` (not the root). O(index nodes between)."""
    node = cache.prefix_index.parent[node]
    while not cache.flags[node] & NODE:
        node = cache.prefix_index.parent[node]
    return node


@inner
def only_cache_node_below(cache: RadixCache, node: int) -> int:
    """Return the nearest cache node below `node`, which has one resident child. O(index nodes between)."""
    node = cache.child_xor[node]
    while not cache.flags[node] & NODE:
        node = cache.child_xor[node]
    return node
