"""Instantaneous replay of a radix-tree policy: look-up and insertion of one request after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.index.seen import deepest_seen, mark_seen
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import (
    COLD,
    EVICTIONS,
    KV_EVICTED,
    NO_CHECKPOINT,
    NOT_ADMITTED,
    PEAK_BYTES,
    STATE_EVICTED,
    Outcome,
)
from marconi_sim.core.radix.cache import (
    HAD_STATE,
    NOW,
    WAS_RESIDENT,
    RadixCache,
    Rules,
    bytes_held,
    insert,
    look_up,
)
from marconi_sim.core.radix.evict import Hooks, evict_until_it_fits
from marconi_sim.core.shape import Shape

UNLIMITED = 2**63 - 1


@inner
def tell_causes(
    index: Index,
    cache: RadixCache,
    input_node: int,
    matched: int,
    reused: int,
    missed: NDArray[np.int32],
) -> None:
    """Write why each token of an input beyond the reused ones is computed (DESIGN section 6)."""
    seen = deepest_seen(index.parent, cache.flags, input_node)
    node = seen
    while not cache.flags[node] & WAS_RESIDENT:
        node = index.parent[node]
    missed[COLD] = index.depth[input_node] - index.depth[seen]
    missed[NOT_ADMITTED] = index.depth[seen] - index.depth[node]
    missed[KV_EVICTED] = index.depth[node] - index.depth[matched]
    node = matched
    while node != reused and not cache.flags[node] & HAD_STATE:
        node = index.parent[node]
    missed[NO_CHECKPOINT] = index.depth[matched] - index.depth[node]
    missed[STATE_EVICTED] = index.depth[node] - index.depth[reused]


@inner
def _begin(
    index: Index, cache: RadixCache, rules: Rules, requests: Requests, i: int, outcome: Outcome
) -> tuple[int, int, int]:
    """Look request i up and write down what came of it; return (matched, reused, branch point) as `look_up` does."""
    cache.clock[NOW] = requests.time[i] if requests.time.size else cache.clock[NOW] + 1
    input_node = requests.input_node[i]
    matched, reused, branch = look_up(index, cache, rules, input_node)
    outcome.matched[i] = index.depth[matched]
    outcome.reused[i] = index.depth[reused]
    tell_causes(index, cache, input_node, matched, reused, outcome.missed[i])
    mark_seen(index.parent, cache.flags, requests.end_node[i])
    cache.clock[NOW] = requests.time[i] if requests.time.size else cache.clock[NOW] + 1
    return matched, reused, branch


@inner
def _finish(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    requests: Requests,
    i: int,
    branch: int,
    verify: bool,
    params: Any,
    hooks: Hooks,
) -> bool:
    """Insert request i and make room; return what `evict_until_it_fits` does."""
    input_node = requests.input_node[i]
    end_node = requests.end_node[i]
    if not insert(index, cache, shape, rules, capacity, input_node, end_node, branch):
        return True
    agreed = evict_until_it_fits(
        index, cache, shape, rules, capacity, end_node, verify, params, hooks
    )
    cache.totals[PEAK_BYTES] = max(cache.totals[PEAK_BYTES], bytes_held(cache, shape))
    return agreed


@kernel
def begin_request(
    index: Index, cache: RadixCache, rules: Rules, requests: Requests, i: int, outcome: Outcome
) -> tuple[int, int, int]:
    """Do the first half of request i alone, for those who drive the cache one request at a time.

    Returns the nodes (matched, reused, branch point); see `marconi_sim.core.radix.cache.look_up`.
    """
    cache.journal.used[0] = 0
    return _begin(index, cache, rules, requests, i, outcome)


@kernel
def finish_request(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    requests: Requests,
    i: int,
    branch: int,
    verify: bool,
    params: Any,
    hooks: Hooks,
) -> bool:
    """Do the second half of request i alone: insertion, and eviction until it fits.

    Returns False if `verify` is set and the search for a victim found another one than a scan.
    """
    return _finish(index, cache, shape, rules, capacity, requests, i, branch, verify, params, hooks)


@kernel
def replay_unlimited(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    requests: Requests,
    first: int,
    last: int,
    outcome: Outcome,
) -> None:
    """Replay the requests [first, last) in a cache that cannot overflow, so that no policy is asked for a victim."""
    for i in range(first, last):
        _, _, branch = _begin(index, cache, rules, requests, i, outcome)
        input_node = requests.input_node[i]
        end_node = requests.end_node[i]
        insert(index, cache, shape, rules, UNLIMITED, input_node, end_node, branch)
        cache.totals[PEAK_BYTES] = bytes_held(cache, shape)


@kernel
def replay_radix(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    requests: Requests,
    first: int,
    last: int,
    until_eviction: bool,
    verify: bool,
    outcome: Outcome,
    params: Any,
    hooks: Hooks,
) -> tuple[int, bool]:
    """Replay the requests [first, last) in processing order.

    With `until_eviction` the replay stops after the first request that evicted something. With `verify` every victim is
    also looked for by a scan.

    Returns (number of the next request, whether search and scan always agreed).
    """
    agreed = True
    for i in range(first, last):
        evicted = cache.totals[EVICTIONS]
        _, _, branch = _begin(index, cache, rules, requests, i, outcome)
        agreed &= _finish(
            index, cache, shape, rules, capacity, requests, i, branch, verify, params, hooks
        )
        if until_eviction and cache.totals[EVICTIONS] > evicted:
            return i + 1, agreed
    return last, agreed
