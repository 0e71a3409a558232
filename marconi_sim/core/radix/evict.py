"""Eviction from a radix-tree cache: the policy's own arithmetic decides which entry goes.

This is the only part of the cache that sees a policy's jitted hooks, so the rest is compiled once for all policies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from marconi_sim.core.index.build import NONE
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import EVICTIONS
from marconi_sim.core.radix.cache import (
    CHANGED,
    DISAGREED,
    FLOOR,
    LISTED,
    NODE,
    NOT_A_NUMBER,
    STATE,
    RadixCache,
    cache_node_above,
    fits,
)
from marconi_sim.core.radix.tree import remove, touch
from marconi_sim.core.shape import prefill_flops
from marconi_sim.core.victims import order as recent
from marconi_sim.core.victims.search import find_victim, scan_for_victim


class Hooks(NamedTuple):
    """A policy's own arithmetic, jitted, with what it is called with.

    value: (Entry, params) -> float. What an entry is worth; computed anew when it is touched and when its edge or
        its children change.
    score: (recency, value, params) -> float. A weighted sum of both that does not fall when recency rises; the entry
        with the lowest score goes first.
    find: how the entry with the lowest score is found: `by_search`, or `by_search_and_scan` that compares the two.
    params: the policy's numbers; see `marconi_sim.core.params`.
    """

    value: Callable[..., float]
    score: Callable[..., float]
    find: Callable[..., tuple[int, float]]
    params: Any


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
def by_search(cache: RadixCache, hooks: Hooks) -> tuple[int, float]:
    """Return (the entry with the lowest score, that score), or (NONE, inf) if none competes."""
    return find_victim(
        cache.order,
        cache.prefix_index.depth,
        cache.created,
        cache.rules.normalised,
        hooks.params,
        hooks.score,
    )


@inner
def by_search_and_scan(cache: RadixCache, hooks: Hooks) -> tuple[int, float]:
    """Do what `by_search` does, and note in the clock if a scan of all entries finds another."""
    scanned, _ = scan_for_victim(
        cache.order,
        cache.prefix_index.depth,
        cache.created,
        cache.rules.normalised,
        hooks.params,
        hooks.score,
    )
    found, score = by_search(cache, hooks)
    if found != scanned:
        cache.clock[DISAGREED] = 1
    return found, score


@inner
def _entry_at(cache: RadixCache, node: int) -> Entry:
    shape = cache.shape
    depth = cache.prefix_index.depth[node]
    parent_depth = cache.prefix_index.depth[cache_node_above(cache, node)]
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
def _settle(cache: RadixCache, hooks: Hooks) -> None:
    """Compute the value of every changed cache node anew."""
    for i in range(cache.sizes[LISTED]):
        node = cache.changed[i]
        cache.flags[node] &= ~CHANGED
        slot = cache.slot[node]
        if slot == NONE:
            continue
        if cache.children[node] <= cache.rules.max_children:
            value = hooks.value(_entry_at(cache, node), hooks.params)
            if not np.isfinite(value):
                cache.clock[NOT_A_NUMBER] = 1
                value = 0.0
            recent.enter(cache.order, slot, value)
        else:
            recent.withdraw(cache.order, slot)
    cache.sizes[LISTED] = 0


@inner
def evict_until_it_fits(cache: RadixCache, end_node: int, hooks: Hooks) -> None:
    """Evict one entry after another while the cache holds more than it may.

    The node at the end of the sequence just inserted goes last and is not part of any normalisation; afterwards it
    takes its place in the order.
    """
    while not fits(cache):
        _settle(cache, hooks)
        victim, score = hooks.find(cache, hooks)
        if victim == NONE:
            # The end of the sequence is all that is left: it enters the order and is found there.
            touch(cache, end_node)
            continue
        if np.isnan(score):
            cache.clock[NOT_A_NUMBER] = 1
        cache.clock[FLOOR] = score
        remove(cache, victim)
        cache.totals[EVICTIONS] += 1
    if cache.flags[end_node] & NODE:
        touch(cache, end_node)
