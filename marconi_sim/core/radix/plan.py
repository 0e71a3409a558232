"""Where a request stores states, if not (only) at nodes of the index: multiples of an interval, ends of chunks, a grid.

A position is a number of tokens from the start of the sequence. What lies in the reused part is not computed, so no
state can be stored there; the end of the reused part itself holds one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from marconi_sim.core.index.build import NONE
from marconi_sim.core.jit import inner
from marconi_sim.core.radix.cache import PLANNED, Positions, RadixCache
from marconi_sim.core.radix.marks import node_at
from marconi_sim.core.radix.tree import checkpoint, touch


class Planner(NamedTuple):
    """The steps for states beside those that `Rules` names: `NO_PLANNER` or `PLANNER`.

    A choice between functions rather than a flag: only the second pair writes to the index, whose arrays are read-only
    where a trace is mapped from its file, and the first costs nothing.

    plan: (cache, reused, branch, input node, end node). Writes `RadixCache.plan`.
    store: (cache, end node). Stores the planned states.
    """

    plan: Callable[..., None]
    store: Callable[..., None]


_NOWHERE = 2**31 - 1  # deeper than any position


@inner
def _after(position: int, wanted: bool, grid: int, reused: int, last: int) -> int:
    """Return a wanted position on the grid if it comes after `last`, else _NOWHERE."""
    rounded = position - position % grid
    return rounded if wanted and rounded >= reused and rounded > last else _NOWHERE


@inner
def _next_position(
    positions: Positions, reused: int, branch: int, input_end: int, end: int, last: int
) -> int:
    """Return the shallowest position deeper than `last`, _NOWHERE if there is none.

    branch: the branch point, 0 if there is none.
    """
    grid = positions.grid
    found = min(
        _after(branch, positions.branch_point, grid, reused, last),
        _after(input_end, positions.input_end, grid, reused, last),
        _after(end, positions.sequence_end, grid, reused, last),
    )
    if positions.interval:
        following = max(last, reused) // positions.interval * positions.interval
        following += positions.interval
        if following <= end:
            found = min(found, following)
    if positions.chunk:
        # Rounding can put the ends of two chunks on one position, or one where the last position was.
        chunk_end = reused + positions.chunk
        if last > reused:
            chunk_end += (last - reused) // positions.chunk * positions.chunk
        while chunk_end <= input_end:
            rounded = chunk_end - chunk_end % grid
            if rounded > last and rounded > reused:
                found = min(found, rounded)
                break
            chunk_end += positions.chunk
    return found


@inner
def _plan_nothing(
    cache: RadixCache, reused: int, branch: int, input_node: int, end_node: int
) -> None:
    pass


@inner
def _store_nothing(cache: RadixCache, end_node: int) -> None:
    pass


@inner
def _plan(cache: RadixCache, reused: int, branch: int, input_node: int, end_node: int) -> None:
    """Write the nodes where a request stores states into `cache.plan`, deepest last. O(nodes on its path).

    reused, branch: nodes, as `look_up` returns them; a branch of NONE: there is none.
    """
    depth = cache.prefix_index.depth
    count = 0
    last = 0
    while True:
        last = _next_position(
            cache.positions,
            depth[reused],
            0 if branch == NONE else depth[branch],
            depth[input_node],
            depth[end_node],
            last,
        )
        if last == _NOWHERE:
            break
        cache.plan[count] = last
        count += 1
    below = end_node
    for k in range(count - 1, -1, -1):
        below = node_at(cache, below, cache.plan[k])
        cache.plan[k] = below
    cache.sizes[PLANNED] = count


@inner
def _store(cache: RadixCache, end_node: int) -> None:
    """Store the planned states of a sequence whose KV is resident, shallow ones first."""
    for k in range(cache.sizes[PLANNED]):
        checkpoint(cache, cache.plan[k])
        if cache.plan[k] != end_node:
            touch(cache, cache.plan[k])


NO_PLANNER = Planner(_plan_nothing, _store_nothing)
PLANNER = Planner(_plan, _store)
