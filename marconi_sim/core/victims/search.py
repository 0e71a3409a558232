"""The search for the entry with the lowest score, and the scan that defines what it must find.

The winner at the root of the order's tournament is right but for rounding. So every entry whose rank is within rounding
of the winner's is scored exactly as the policy says, and ties are broken: the search returns what the scan returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE
from marconi_sim.core.jit import inner
from marconi_sim.core.victims.order import (
    HIGH,
    LOW,
    TIME,
    USED,
    VALUE,
    WIDTH,
    Order,
    bring_up_to_date,
)

_STEEPEST = 1e150  # stands for an infinite slope: the value alone decides
_ROUNDING = 1e-13  # relative; scores closer than this are compared exactly


@inner
def _end_time(order: Order, last: int) -> float:
    """Return the earliest (last = 0) or the latest (last = 1) touch of a competing entry; there must be one."""
    t = 1
    while t < order.size[WIDTH]:
        t = 2 * t + last
        if order.tree[t, TIME] == np.inf:
            t ^= 1
    return order.tree[t, TIME]


class Field(NamedTuple):
    """What recency and value are normalised over: the earliest and latest time, the lowest and highest value."""

    earliest: float
    latest: float
    lowest: float
    highest: float


@inner
def _field(order: Order) -> Field:
    return Field(_end_time(order, 0), _end_time(order, 1), order.tree[1, LOW], order.tree[1, HIGH])


@inner
def _normalise(x: float, low: float, high: float) -> float:
    """Min-max: 0 at `low`, 1 at `high`, and 1 where the two are equal (DESIGN section 5)."""
    return 1.0 if low == high else (x - low) / (high - low)


@inner
def _exact_score(
    time: float,
    value: float,
    field: Field,
    normalised: bool,
    params: Any,
    score: Callable[..., float],
) -> float:
    if normalised:
        return score(
            _normalise(time, field.earliest, field.latest),
            _normalise(value, field.lowest, field.highest),
            params,
        )
    return score(time, value, params)


@inner
def _slope(field: Field, normalised: bool, params: Any, score: Callable[..., float]) -> float:
    """Return how much time a unit of value is worth in the ranking."""
    nothing = score(0.0, 0.0, params)
    of_time = score(1.0, 0.0, params) - nothing
    of_value = score(0.0, 1.0, params) - nothing
    if normalised:
        times = field.latest - field.earliest
        values = field.highest - field.lowest
        of_time = of_time / times if times > 0 else 0.0
        of_value = of_value / values if values > 0 else 0.0
    if of_value == 0:
        return 0.0
    if of_time <= 0:
        return _STEEPEST if of_value > 0 else -_STEEPEST
    return min(max(of_value / of_time, -_STEEPEST), _STEEPEST)


@inner
def _goes_before(
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
    if order.tree[1, TIME] == np.inf:
        return best, best_score
    slots = order.size[WIDTH]
    field = _field(order)
    for slot in range(order.size[USED]):
        time = order.tree[slots + slot, TIME]
        if time != np.inf:
            value = order.tree[slots + slot, VALUE]
            s = _exact_score(time, value, field, normalised, params, score)
            if _goes_before(s, order.node[slot], best_score, best, depth, created):
                best = order.node[slot]
                best_score = s
    return best, best_score


@inner
def find_victim(
    order: Order,
    depth: NDArray[np.int32],
    created: NDArray[np.int32],
    normalised: bool,
    params: Any,
    score: Callable[..., float],
) -> tuple[int, float]:
    """Return (the entry with the lowest score, that score), or (NONE, inf) if none competes."""
    best = NONE
    best_score = np.inf
    tree = order.tree
    if tree[1, TIME] == np.inf:
        return best, best_score
    field = _field(order)
    slope = _slope(field, normalised, params, score)
    bring_up_to_date(order, slope)
    largest = max(abs(field.lowest), abs(field.highest))
    margin = _ROUNDING * (abs(field.latest) + abs(slope) * largest)
    if score(1.0, 0.0, params) == score(0.0, 0.0, params):
        margin += field.latest - field.earliest  # without recency, entries of any age can be equal
    limit = tree[1, TIME] + slope * tree[1, VALUE] + margin
    slots = order.size[WIDTH]
    order.stack[0] = 1
    top = 1
    while top > 0:
        top -= 1
        t = order.stack[top]
        if t >= slots:
            node = order.node[t - slots]
            s = _exact_score(tree[t, TIME], tree[t, VALUE], field, normalised, params, score)
            if _goes_before(s, node, best_score, best, depth, created):
                best = node
                best_score = s
        else:
            for half in (2 * t + 1, 2 * t):
                if tree[half, TIME] + slope * tree[half, VALUE] <= limit:
                    order.stack[top] = half
                    top += 1
    return best, best_score
