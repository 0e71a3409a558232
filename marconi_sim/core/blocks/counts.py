"""What the two block caches share: how many blocks of each edge are resident, and edges by last touch.

Blocks are counted, not listed. An edge of the index owns the full blocks that end on it, at (parent depth, depth].
A look-up touches leading blocks and an insertion touches all blocks of a sequence, so a block is never older than one
behind it, and among equally old ones the deepest goes first. So what is resident of a sequence is always a prefix of
it, all resident blocks of an edge have the same time, and one number is an edge's state: how many are resident.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.requests import Index
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.jit import inner

OLDEST = 0  # the root stands for both ends of the list of entries by last touch: next[0] is the oldest entry,
NEWEST = 0  # previous[0] the newest


class BlockCache(NamedTuple):
    """The state of a block cache. Its first entries are the edges of the index, under the numbers of their lower nodes.

    flags: uint8 (nodes,). Only SEEN.
    resident: int32 (entries,). Resident full blocks that end on the edge above each node; a cache may have more entries
        behind these.
    previous, next: int32 (entries,). Entries with resident blocks from the oldest to the newest touch; of those touched
        together the deepest is the oldest.
    """

    flags: NDArray[np.uint8]
    resident: NDArray[np.int32]
    previous: NDArray[np.int32]
    next: NDArray[np.int32]


def empty_cache(nodes: int, entries: int) -> BlockCache:
    """Return an empty cache of at least as many entries as the index has nodes."""
    flags = np.zeros(nodes, np.uint8)
    flags[ROOT] = SEEN
    return BlockCache(flags, *(np.zeros(entries, np.int32) for _ in range(3)))


@inner
def unlink(cache: BlockCache, entry: int) -> None:
    """Take an entry out of the list."""
    cache.next[cache.previous[entry]] = cache.next[entry]
    cache.previous[cache.next[entry]] = cache.previous[entry]


@inner
def link_newest(cache: BlockCache, entry: int) -> None:
    """Put an entry that is not in the list at its end."""
    newest = cache.previous[NEWEST]
    cache.next[newest] = entry
    cache.previous[entry] = newest
    cache.next[entry] = ROOT
    cache.previous[NEWEST] = entry


@inner
def deepest_held(index: Index, cache: BlockCache, node: int) -> int:
    """Return the lowest edge with resident blocks on the path to `node`, or ROOT."""
    while node != ROOT and cache.resident[node] == 0:
        node = index.parent[node]
    return node


@inner
def blocks_down_to(index: Index, cache: BlockCache, block: int, edge: int) -> int:
    """Return how many resident blocks there are from the root to the end of those of `edge`, which has some."""
    if edge == ROOT:
        return 0
    return index.depth[index.parent[edge]] // block + cache.resident[edge]


@inner
def touch_path(index: Index, cache: BlockCache, node: int) -> None:
    """Make the edges with resident blocks on the path to `node` the newest, the deepest the oldest of them."""
    while node != ROOT:
        if cache.resident[node] > 0:
            unlink(cache, node)
            link_newest(cache, node)
        node = index.parent[node]


@inner
def hold_path(index: Index, cache: BlockCache, block: int, node: int) -> int:
    """Make every full block on the path to `node` resident, touch them all, and return how many are new."""
    added = 0
    bottom = index.depth[node] // block
    while node != ROOT:
        up = index.parent[node]
        top = index.depth[up] // block
        if bottom > top:
            if cache.resident[node] > 0:
                unlink(cache, node)
            added += bottom - top - cache.resident[node]
            cache.resident[node] = bottom - top
            link_newest(cache, node)
        node = up
        bottom = top
    return added
