"""Instantaneous replay of a radix-tree policy: look-up and insertion of one request after the other."""

from __future__ import annotations

from marconi_sim.core.index.requests import Requests
from marconi_sim.core.index.seen import mark_seen
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import EVICTIONS, PEAK_BYTES, Outcome
from marconi_sim.core.radix.cache import NOW, RadixCache, bytes_held
from marconi_sim.core.radix.causes import tell_causes
from marconi_sim.core.radix.evict import Hooks, evict_until_it_fits
from marconi_sim.core.radix.plan import Planner
from marconi_sim.core.radix.steps import Found, insert, look_up


@inner
def _tick(cache: RadixCache, requests: Requests, i: int) -> None:
    cache.clock[NOW] = requests.time[i] if requests.time.size else cache.clock[NOW] + 1


@inner
def _begin(
    cache: RadixCache, planner: Planner, requests: Requests, i: int, outcome: Outcome
) -> Found:
    """Look request i up, decide where it stores states, and write down what came of it."""
    _tick(cache, requests, i)
    index = cache.prefix_index
    input_node = requests.input_node[i]
    end_node = requests.end_node[i]
    found = look_up(cache, input_node)
    outcome.matched[i] = index.depth[found.matched]
    outcome.reused[i] = index.depth[found.reused]
    tell_causes(
        index,
        cache.flags,
        input_node,
        found.matched,
        found.reused,
        cache.positions.grid,
        outcome.missed[i],
    )
    mark_seen(index.parent, cache.flags, end_node)
    planner.plan(cache, found.reused, found.branch, input_node, end_node)
    _tick(cache, requests, i)
    return found


@inner
def _finish(
    cache: RadixCache, planner: Planner, requests: Requests, i: int, branch: int, hooks: Hooks
) -> None:
    """Insert request i and make room."""
    end_node = requests.end_node[i]
    if insert(cache, planner, requests.input_node[i], end_node, branch):
        evict_until_it_fits(cache, end_node, hooks)
        cache.totals[PEAK_BYTES] = max(cache.totals[PEAK_BYTES], bytes_held(cache))


@kernel
def begin_request(
    cache: RadixCache, planner: Planner, requests: Requests, i: int, outcome: Outcome
) -> Found:
    """Do the first half of request i alone, for those who drive the cache one request at a time."""
    cache.journal.used[0] = 0
    return _begin(cache, planner, requests, i, outcome)


@kernel
def finish_request(
    cache: RadixCache, planner: Planner, requests: Requests, i: int, branch: int, hooks: Hooks
) -> None:
    """Do the second half of request i alone: insertion, and eviction until it fits.

    branch: as found by the first half.
    """
    _finish(cache, planner, requests, i, branch, hooks)


@kernel
def replay_unlimited(
    cache: RadixCache,
    planner: Planner,
    requests: Requests,
    first: int,
    last: int,
    outcome: Outcome,
) -> None:
    """Replay the requests [first, last) in a cache that cannot overflow, so that no policy is asked for a victim."""
    for i in range(first, last):
        found = _begin(cache, planner, requests, i, outcome)
        insert(cache, planner, requests.input_node[i], requests.end_node[i], found.branch)
        cache.totals[PEAK_BYTES] = bytes_held(cache)


@kernel
def replay_radix(
    cache: RadixCache,
    planner: Planner,
    requests: Requests,
    first: int,
    last: int,
    until_eviction: bool,
    outcome: Outcome,
    hooks: Hooks,
) -> int:
    """Replay the requests [first, last) in processing order; return the number of the next one.

    With `until_eviction` the replay stops after the first request that evicted something.
    """
    for i in range(first, last):
        evicted = cache.totals[EVICTIONS]
        found = _begin(cache, planner, requests, i, outcome)
        _finish(cache, planner, requests, i, found.branch, hooks)
        if until_eviction and cache.totals[EVICTIONS] > evicted:
            return i + 1
    return last
