"""Who goes next: the entries of a cache in order of their last touch, with a search for the lowest score.

A score is a weighted sum of recency and of a value that the policy gives an entry, so at any moment the entries rank as
`time + slope * value` does, with one slope for all. The slope drifts, because recency and value are normalised over the
entries that compete, but slowly. So a tournament tree over the slots keeps the winner of each range together with the
interval of slopes for which the winners of the whole range stay the same (a kinetic segment tree). A search brings the
parts up to date whose interval the slope has left, usually none, and reads the winner at the root (`search.py`).

A slot whose entry may not be evicted now (a node with too many children) keeps its place and competes for nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE
from marconi_sim.core.jit import inner

# Positions in `Order.size`.
USED = 0  # slots in use, dead ones included
WIDTH = 1  # slots that the tree stands on now: a power of two
KEPT = 2  # 1 if the order is kept at all; a cache that can never overflow does not need it

# Columns of `Order.tree`.
TIME, VALUE = 0, 1  # of the range's winner; TIME is inf where no entry competes
FROM, TO = 2, 3  # slopes for which the winners in the whole range are right, both ends included
LOW, HIGH = 4, 5  # lowest and highest value in the range; inf and -inf where no entry competes

_STACK = 128  # at least twice the depth of a tree over 2^62 slots


class Order(NamedTuple):
    """Entries by last touch. There is room for four times as many slots as entries; `size[WIDTH]` of them are used.

    node: int32 (slots,). Entry in each slot; NONE where it has moved on.
    time: float64 (slots,). Time of the touch, not falling.
    tree: float64 (2 * slots, 6). Tournament tree, root at 1, slot s at WIDTH + s; a row is a range with the columns
        above. A row a node rather than an array a column, because an update reads whole rows along a path.
    slope: float64 (1,). The slope for which all winners in `tree` are right.
    outdated: int32 (slots,). Scratch: ranges to bring up to date.
    stack: int64 (depth of the search,). Scratch: ranges to look into.
    size: int64 (3,). See USED, WIDTH and KEPT.
    """

    node: NDArray[np.int32]
    time: NDArray[np.float64]
    tree: NDArray[np.float64]
    slope: NDArray[np.float64]
    outdated: NDArray[np.int32]
    stack: NDArray[np.int64]
    size: NDArray[np.int64]


def new_order(entries: int) -> Order:
    """Return an empty order with room for `entries` entries; 0: the order is not kept.

    Memory is only reserved: pages are used as far as the tree has grown.
    """
    slots = 2
    while slots < 4 * entries:
        slots *= 2
    order = Order(
        node=np.empty(slots, np.int32),
        time=np.empty(slots, np.float64),
        tree=np.empty((2 * slots, 6)),
        slope=np.zeros(1),
        outdated=np.empty(slots, np.int32),
        stack=np.zeros(_STACK, np.int64),
        size=np.array([0, 2, entries > 0], np.int64),
    )
    order.node[:2] = NONE
    order.tree[:4] = (np.inf, 0.0, -np.inf, np.inf, np.inf, -np.inf)
    return order


def copy_order(order: Order) -> Order:
    """Return an independent copy; O(slots in use)."""
    copy = Order(*(np.empty_like(array) for array in order))
    width = order.size[WIDTH]
    copy.node[:width] = order.node[:width]
    copy.time[:width] = order.time[:width]
    copy.tree[: 2 * width] = order.tree[: 2 * width]
    copy.slope[:] = order.slope
    copy.size[:] = order.size
    return copy


@inner
def _play(tree: NDArray[np.float64], t: int, slope: float) -> bool:
    """Let the two halves of range t compete; both must be right for this slope. Return whether its row changed."""
    left = 2 * t
    right = left + 1
    start = max(tree[left, FROM], tree[right, FROM])
    stop = min(tree[left, TO], tree[right, TO])
    winner = left
    if tree[left, TIME] == np.inf:
        winner = right
    elif tree[right, TIME] != np.inf:
        later = tree[right, TIME] - tree[left, TIME]
        cheaper = tree[left, VALUE] - tree[right, VALUE]
        if slope * cheaper > later:
            winner = right
        if cheaper != 0:
            crossing = later / cheaper  # the slope at which the two are equal
            if (cheaper > 0) == (winner == left):
                stop = min(stop, crossing)
            else:
                start = max(start, crossing)
    low = min(tree[left, LOW], tree[right, LOW])
    high = max(tree[left, HIGH], tree[right, HIGH])
    changed = (
        tree[t, TIME] != tree[winner, TIME]
        or tree[t, VALUE] != tree[winner, VALUE]
        or tree[t, FROM] != start
        or tree[t, TO] != stop
        or tree[t, LOW] != low
        or tree[t, HIGH] != high
    )
    tree[t, TIME] = tree[winner, TIME]
    tree[t, VALUE] = tree[winner, VALUE]
    tree[t, FROM] = start
    tree[t, TO] = stop
    tree[t, LOW] = low
    tree[t, HIGH] = high
    return changed


@inner
def _replay_above(order: Order, slot: int) -> None:
    t = (order.size[WIDTH] + slot) >> 1
    while t >= 1 and _play(order.tree, t, order.slope[0]):
        t >>= 1


@inner
def _set_leaf(order: Order, slot: int, time: float, value: float) -> None:
    """Set what a slot brings into the competition; a time of inf is nothing."""
    t = order.size[WIDTH] + slot
    order.tree[t, TIME] = time
    order.tree[t, VALUE] = value
    order.tree[t, FROM] = -np.inf
    order.tree[t, TO] = np.inf
    order.tree[t, LOW] = value if time != np.inf else np.inf
    order.tree[t, HIGH] = value if time != np.inf else -np.inf


@inner
def enter(order: Order, slot: int, value: float) -> None:
    """Let the entry in `slot` compete with this value. O(log slots)."""
    _set_leaf(order, slot, order.time[slot], value)
    _replay_above(order, slot)


@inner
def withdraw(order: Order, slot: int) -> None:
    """Take the entry in `slot` out of the competition; it keeps its place. O(log slots)."""
    if order.tree[order.size[WIDTH] + slot, TIME] != np.inf:
        _set_leaf(order, slot, np.inf, 0.0)
        _replay_above(order, slot)


@inner
def _compact(order: Order, slot_of: NDArray[np.int32]) -> None:
    """Close the gaps that moved entries have left, and fit the tree to what remains.

    O(slots), once every half as many touches at most.
    """
    live = 0
    for slot in range(order.size[USED]):
        live += order.node[slot] != NONE
    old = order.size[WIDTH]
    new = 2
    while new < 2 * live:
        new *= 2
    # The leaves move within one array: what is kept of them is parked where neither the old nor the new tree is read.
    free = 0
    for slot in range(order.size[USED]):
        node = order.node[slot]
        if node != NONE:
            order.node[free] = node
            order.time[free] = order.time[slot]
            slot_of[node] = free
            order.tree[free, TIME] = order.tree[old + slot, TIME]
            order.tree[free, VALUE] = order.tree[old + slot, VALUE]
            free += 1
    order.size[USED] = live
    order.size[WIDTH] = new
    for slot in range(live - 1, -1, -1):
        _set_leaf(order, slot, order.tree[slot, TIME], order.tree[slot, VALUE])
    for slot in range(live, new):
        order.node[slot] = NONE
        _set_leaf(order, slot, np.inf, 0.0)
    for t in range(new - 1, 0, -1):
        _play(order.tree, t, order.slope[0])


@inner
def drop(order: Order, slot_of: NDArray[np.int32], node: int) -> None:
    """Forget an entry. O(log slots)."""
    slot = slot_of[node]
    if slot != NONE:
        slot_of[node] = NONE
        order.node[slot] = NONE
        withdraw(order, slot)


@inner
def append(order: Order, slot_of: NDArray[np.int32], node: int, time: float) -> None:
    """Put an entry at the recent end, not competing yet, if the order is kept. O(log slots), amortised."""
    if not order.size[KEPT]:
        return
    drop(order, slot_of, node)
    if order.size[USED] == order.size[WIDTH]:
        _compact(order, slot_of)
    slot = order.size[USED]
    order.size[USED] = slot + 1
    order.node[slot] = node
    order.time[slot] = time
    slot_of[node] = slot


@inner
def _is_outdated(order: Order, t: int, slope: float) -> bool:
    return not order.tree[t, FROM] <= slope <= order.tree[t, TO]


@inner
def bring_up_to_date(order: Order, slope: float) -> None:
    """Make every range's winner right for a new slope. O(ranges whose winners it may change)."""
    order.slope[0] = slope
    count = 0
    if _is_outdated(order, 1, slope):
        order.outdated[0] = 1
        count = 1
    i = 0
    while (
        i < count
    ):  # parents before children; a range is as narrow as its halves, so nothing is overlooked
        t = order.outdated[i]
        for half in (2 * t, 2 * t + 1):
            if half < order.size[WIDTH] and _is_outdated(order, half, slope):
                order.outdated[count] = half
                count += 1
        i += 1
    for i in range(count - 1, -1, -1):
        _play(order.tree, order.outdated[i], slope)
