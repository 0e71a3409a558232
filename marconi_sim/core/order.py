"""Who goes next: the entries of a cache in order of their last touch, with a search for the lowest score.

A score is a function of recency and of a value that the policy gives an entry, and never falls when one of the two
rises. Touches are append-only, so slots are in order of time. A segment tree over the slots holds the lowest and the
highest value of each range; the first slot of a range bounds its recency. Both bounds together bound the score, so a
branch-and-bound walk finds exactly the entry that a scan of all entries would find, in a few steps per level.

A slot whose entry may not be evicted now (a node with too many children) keeps its place with an infinite value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index import NONE
from marconi_sim.core.jit import inner

USED = 0  # slots in use, dead ones included
KEPT = 1  # 1 if the order is kept at all; a cache that can never overflow does not need it
_STACK = 128  # twice the depth of a segment tree over 2^63 slots


class Order(NamedTuple):
    """Entries by last touch. `slots` is a power of two, at least twice the number of entries.

    node: int32 (slots,). Entry in each slot; NONE where it has moved on.
    time: float64 (slots,). Time of the touch, not falling; kept in dead slots, where it still bounds.
    low, high: float64 (2 * slots,). Segment tree, root at 1, slot s at slots + s: the lowest and highest value of the
        entries that may be evicted; +inf and -inf where there is none.
    size: int64 (2,). See USED and KEPT.
    ranges: int64 (depth of the search, 3). Scratch: ranges still to visit, as (segment tree node, first slot, width).
    bounds: float64 (depth of the search,). Scratch: a score that no entry of the range is below.
    """

    node: NDArray[np.int32]
    time: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    size: NDArray[np.int64]
    ranges: NDArray[np.int64]
    bounds: NDArray[np.float64]


def new_order(entries: int) -> Order:
    """Return an empty order with room for `entries` entries; 0: the order is not kept."""
    slots = 2
    while slots < 2 * entries:
        slots *= 2
    return Order(
        node=np.full(slots, NONE, np.int32),
        time=np.zeros(slots, np.float64),
        low=np.full(2 * slots, np.inf),
        high=np.full(2 * slots, -np.inf),
        size=np.array([0, entries > 0], np.int64),
        ranges=np.zeros((_STACK, 3), np.int64),
        bounds=np.zeros(_STACK, np.float64),
    )


@inner
def set_value(order: Order, slot: int, low: float, high: float) -> None:
    """Give the entry in `slot` a value (low == high), or take it out of the running (+inf, -inf). O(log slots)."""
    t = order.node.size + slot
    order.low[t] = low
    order.high[t] = high
    while t > 1:
        t >>= 1
        low = min(order.low[2 * t], order.low[2 * t + 1])
        high = max(order.high[2 * t], order.high[2 * t + 1])
        if order.low[t] == low and order.high[t] == high:
            break
        order.low[t] = low
        order.high[t] = high


@inner
def rebuild(order: Order) -> None:
    """Compute the inner nodes of the segment tree from its leaves. O(slots)."""
    for t in range(order.node.size - 1, 0, -1):
        order.low[t] = min(order.low[2 * t], order.low[2 * t + 1])
        order.high[t] = max(order.high[2 * t], order.high[2 * t + 1])


@inner
def _compact(order: Order, slot_of: NDArray[np.int32]) -> None:
    """Close the gaps that moved entries have left. O(slots), once every slots / 2 touches at most."""
    slots = order.node.size
    free = 0
    for slot in range(slots):
        node = order.node[slot]
        if node != NONE:
            order.node[free] = node
            order.time[free] = order.time[slot]
            order.low[slots + free] = order.low[slots + slot]
            order.high[slots + free] = order.high[slots + slot]
            slot_of[node] = free
            free += 1
    for slot in range(free, slots):
        order.node[slot] = NONE
        order.low[slots + slot] = np.inf
        order.high[slots + slot] = -np.inf
    order.size[USED] = free
    rebuild(order)


@inner
def drop(order: Order, slot_of: NDArray[np.int32], node: int) -> None:
    """Forget an entry. O(log slots)."""
    slot = slot_of[node]
    if slot != NONE:
        slot_of[node] = NONE
        order.node[slot] = NONE
        set_value(order, slot, np.inf, -np.inf)


@inner
def append(order: Order, slot_of: NDArray[np.int32], node: int, time: float) -> None:
    """Put an entry at the recent end, with no value yet, if the order is kept. O(log slots), amortised."""
    if not order.size[KEPT]:
        return
    drop(order, slot_of, node)
    if order.size[USED] == order.node.size:
        _compact(order, slot_of)
    slot = order.size[USED]
    order.size[USED] = slot + 1
    order.node[slot] = node
    order.time[slot] = time
    slot_of[node] = slot


@inner
def _end_slot(order: Order, last: int) -> int:
    """Return the first (last = 0) or the last (last = 1) slot that may be evicted; there must be one."""
    t = 1
    while t < order.node.size:
        t = 2 * t + last
        if order.low[t] == np.inf:
            t ^= 1
    return t - order.node.size


@inner
def _normalise(x: float, low: float, high: float) -> float:
    """Min-max: 0 at `low`, 1 at `high`, and 1 where the two are equal (DESIGN section 5)."""
    # A dead slot's time may lie below every live one; clamped, it is still a bound.
    return 1.0 if low == high else (max(x, low) - low) / (high - low)


@inner
def _score(
    order: Order,
    slot: int,
    value: float,
    times: tuple[float, float],
    normalised: bool,
    params: Any,
    score: Callable[..., float],
) -> float:
    time = order.time[slot]
    if normalised:
        return score(
            _normalise(time, times[0], times[1]),
            _normalise(value, order.low[1], order.high[1]),
            params,
        )
    return score(time, value, params)


@inner
def goes_before(
    score: float, node: int, best_score: float, best: int, depth: Any, created: Any
) -> bool:
    """Tell whether `node` is evicted before `best`: lower score, then smaller depth, then older creation."""
    if best == NONE or score != best_score:
        return best == NONE or score < best_score
    if depth[node] != depth[best]:
        return depth[node] < depth[best]
    return created[node] < created[best]


@inner
def scan_for_victim(
    order: Order,
    depth: NDArray[np.int32],
    created: NDArray[np.int32],
    normalised: bool,
    params: Any,
    score: Callable[..., float],
) -> tuple[int, float]:
    """Return what `find_victim` returns, by scoring every entry: the definition, used to check the search. O(slots)."""
    best = NONE
    best_score = np.inf
    if order.low[1] == np.inf:
        return best, best_score
    slots = order.node.size
    times = (order.time[_end_slot(order, 0)], order.time[_end_slot(order, 1)])
    for slot in range(order.size[USED]):
        value = order.low[slots + slot]
        if value != np.inf:
            s = _score(order, slot, value, times, normalised, params, score)
            if goes_before(s, order.node[slot], best_score, best, depth, created):
                best = order.node[slot]
                best_score = s
    return best, best_score


@inner
def _push(order: Order, top: int, t: int, first: int, width: int, bound: float) -> int:
    """Put a range on the stack unless nothing in it may be evicted; return the new height."""
    if order.low[t] == np.inf:
        return top
    order.ranges[top, 0] = t
    order.ranges[top, 1] = first
    order.ranges[top, 2] = width
    order.bounds[top] = bound
    return top + 1


@inner
def find_victim(
    order: Order,
    depth: NDArray[np.int32],
    created: NDArray[np.int32],
    normalised: bool,
    params: Any,
    score: Callable[..., float],
) -> tuple[int, float]:
    """Return (the entry with the lowest score, that score), or (NONE, inf) if none may be evicted."""
    best = NONE
    best_score = np.inf
    if order.low[1] == np.inf:
        return best, best_score
    slots = order.node.size
    times = (order.time[_end_slot(order, 0)], order.time[_end_slot(order, 1)])
    _push(order, 0, 1, 0, slots, -np.inf)
    top = 1
    while top > 0:
        top -= 1
        # Equal scores are visited too: ties are broken by depth and creation.
        if order.bounds[top] > best_score:
            continue
        t = order.ranges[top, 0]
        first = order.ranges[top, 1]
        if t >= slots:
            node = order.node[first]
            if goes_before(order.bounds[top], node, best_score, best, depth, created):
                best = node
                best_score = order.bounds[top]
            continue
        half = order.ranges[top, 2] // 2
        middle = first + half
        left = np.inf
        right = np.inf
        if order.low[2 * t] != np.inf:
            left = _score(order, first, order.low[2 * t], times, normalised, params, score)
        if order.low[2 * t + 1] != np.inf:
            right = _score(order, middle, order.low[2 * t + 1], times, normalised, params, score)
        # The more promising half goes on top, so that the other one is likely to be pruned.
        if left <= right:
            top = _push(order, top, 2 * t + 1, middle, half, right)
            top = _push(order, top, 2 * t, first, half, left)
        else:
            top = _push(order, top, 2 * t, first, half, left)
            top = _push(order, top, 2 * t + 1, middle, half, right)
    return best, best_score
