"""Eviction from a radix-tree cache: the policy's own arithmetic decides which entry goes.

This is the only part of the cache that sees a policy's jitted hooks, so the rest is compiled once for all policies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from marconi_sim.core.index.build import NONE
from marconi_sim.core.index.requests import Index
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import EVICTIONS
from marconi_sim.core.radix.cache import (
    CHANGED,
    FLOOR,
    NODE,
    NOT_A_NUMBER,
    STATE,
    RadixCache,
    Rules,
    bytes_held,
    cache_node_above,
    remove,
    touch,
)
from marconi_sim.core.shape import Shape, prefill_flops
from marconi_sim.core.victims import order as recent
from marconi_sim.core.victims.search import find_victim, scan_for_victim


class Hooks(NamedTuple):
    """A policy's own arithmetic, jitted.

    value: (Entry, params) -> float. What an entry is worth; computed anew when it is touched and when its edge or
        its children change.
    score: (recency, value, params) -> float. A weighted sum of both that does not fall when recency rises; the entry
        with the lowest score goes first.
    """

    value: Callable[..., float]
    score: Callable[..., float]


class Entry(NamedTuple):
    """What a policy's `value` sees of an entry (a cache node with the edge above it).

    depth, parent_depth: int. Tokens from the root to the node and to the cache node above it.
    kv_bytes: int. Bytes of the KV on its edge, the tokens [parent_depth, depth).
    state_bytes: int. Bytes of its recurrent state, 0 if it holds none.
    flops: float. F(depth) - F(parent_depth): what its reuse saves beyond its parent's.
    hits: int. How often its state was reused.
    time: float. Its last touch: look-ups and insertions so far, or seconds.
    floor: float. Score of the last victim, 0 before the first eviction (for policies that age entries).
    """

    depth: int
    parent_depth: int
    kv_bytes: int
    state_bytes: int
    flops: float
    hits: int
    time: float
    floor: float


@kernel
def no_value(entry: Entry, params: Any) -> float:
    """Value every entry alike."""
    return 0.0


@kernel
def recency_only(recency: float, value: float, params: Any) -> float:
    """Evict the least recently touched entry."""
    return recency


@inner
def _entry_at(index: Index, cache: RadixCache, shape: Shape, node: int) -> Entry:
    depth = index.depth[node]
    parent_depth = index.depth[cache_node_above(index, cache, node)]
    return Entry(
        depth,
        parent_depth,
        shape.kv_bytes * (depth - parent_depth),
        shape.state_bytes if cache.flags[node] & STATE else 0,
        prefill_flops(shape, depth) - prefill_flops(shape, parent_depth),
        cache.hits[node],
        cache.time[node],
        cache.clock[FLOOR],
    )


@inner
def _settle(
    index: Index, cache: RadixCache, shape: Shape, rules: Rules, params: Any, hooks: Hooks
) -> None:
    """Compute the value of every changed cache node anew."""
    for i in range(cache.changed_count[0]):
        node = cache.changed[i]
        cache.flags[node] &= ~CHANGED
        slot = cache.slot[node]
        if slot == NONE:
            continue
        if cache.children[node] <= rules.max_children:
            value = hooks.value(_entry_at(index, cache, shape, node), params)
            if not np.isfinite(value):
                cache.clock[NOT_A_NUMBER] = 1
                value = 0.0
            recent.enter(cache.order, slot, value)
        else:
            recent.withdraw(cache.order, slot)
    cache.changed_count[0] = 0


@inner
def evict_until_it_fits(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    end_node: int,
    verify: bool,
    params: Any,
    hooks: Hooks,
) -> bool:
    """Evict one entry after another while the cache holds more than `capacity` bytes.

    The node at the end of the sequence just inserted goes last and is not part of any normalisation; afterwards it
    takes its place in the order. Returns False if `verify` is set and the search found another victim than a scan.
    """
    agreed = True
    order = cache.order
    while bytes_held(cache, shape) > capacity:
        _settle(index, cache, shape, rules, params, hooks)
        victim, score = find_victim(
            order, index.depth, cache.created, rules.normalised, params, hooks.score
        )
        if verify:
            scanned, _ = scan_for_victim(
                order, index.depth, cache.created, rules.normalised, params, hooks.score
            )
            agreed = agreed and scanned == victim
        if victim == NONE:
            # The end of the sequence is all that is left: it enters the order and is found there.
            touch(cache, end_node)
            continue
        if np.isnan(score):
            cache.clock[NOT_A_NUMBER] = 1
        cache.clock[FLOOR] = score
        remove(index, cache, victim)
        cache.totals[EVICTIONS] += 1
    if cache.flags[end_node] & NODE:
        touch(cache, end_node)
    return agreed
