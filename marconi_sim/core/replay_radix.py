"""Instantaneous replay of a radix-tree policy: look-up and insertion of one request after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.audit import audit_radix, audit_request
from marconi_sim.core.evict import Hooks, evict_until_it_fits
from marconi_sim.core.jit import kernel
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
from marconi_sim.core.radix import (
    HAD_STATE,
    NOW,
    WAS_RESIDENT,
    Index,
    RadixCache,
    Rules,
    bytes_held,
    insert,
    look_up,
)
from marconi_sim.core.seen import deepest_seen, mark_seen
from marconi_sim.core.shape import Shape

OK = 0
BAD_VICTIM = -1  # the search found another victim than the scan; further codes are those of audit.py


@kernel
def tell_causes(
    index: Index, cache: RadixCache, input_node: int, matched: int, reused: int, missed: NDArray[np.int32]
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


@kernel
def replay_radix(
    index: Index,
    cache: RadixCache,
    shape: Shape,
    rules: Rules,
    capacity: int,
    input_node: NDArray[np.int32],
    end_node: NDArray[np.int32],
    arrival: NDArray[np.float64],
    seconds: bool,
    first: int,
    last: int,
    until_eviction: bool,
    check: bool,
    outcome: Outcome,
    params: Any,
    hooks: Hooks,
) -> tuple[int, int]:
    """Replay the requests [first, last), in processing order.

    Time is the arrival in seconds, or a logical clock that ticks at each look-up and at each insertion. With
    `until_eviction` the replay stops after the first request that evicted something. With `check` every invariant is
    checked after every request, which stops at the first that does not hold.

    Returns (number of the next request, OK or the code of the broken invariant).
    """
    for i in range(first, last):
        cache.clock[NOW] = arrival[i] if seconds else cache.clock[NOW] + 1
        matched, reused, branch = look_up(index, cache, rules, input_node[i])
        tell_causes(index, cache, input_node[i], matched, reused, outcome.missed[i])
        outcome.matched[i] = index.depth[matched]
        outcome.reused[i] = index.depth[reused]
        mark_seen(index.parent, cache.flags, end_node[i])

        cache.clock[NOW] = arrival[i] if seconds else cache.clock[NOW] + 1
        evicted = outcome.totals[EVICTIONS]
        if insert(
            index, cache, shape, rules, capacity, input_node[i], end_node[i], branch
        ):
            agreed = evict_until_it_fits(
                index, cache, shape, rules, capacity, end_node[i], check, params, hooks
            )
            held = bytes_held(cache, shape)
            outcome.totals[PEAK_BYTES] = max(outcome.totals[PEAK_BYTES], held)
            if not agreed:
                return i, BAD_VICTIM
        if check:
            code = audit_request(
                index.depth[input_node[i]], outcome.matched[i], outcome.reused[i], outcome.missed[i]
            )
            if code == OK:
                code = audit_radix(index, cache, shape, rules, capacity)
            if code != OK:
                return i, code
        if until_eviction and outcome.totals[EVICTIONS] > evicted:
            return i + 1, OK
    return last, OK

