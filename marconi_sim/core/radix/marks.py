"""Nodes inside the edges of the index, for states that lie between the places where sequences split and end.

Along an edge all sequences agree, so a node put into it changes no answer: whatever holds for the edge holds for both
its parts. A mark stays once it is there, as the index's own nodes do: what lay at it once explains misses later.
"""

from __future__ import annotations

from marconi_sim.core.index.build import NONE
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.jit import inner
from marconi_sim.core.radix.cache import NODES, RESIDENT, WAS_RESIDENT, RadixCache


@inner
def _put(cache: RadixCache, below: int, depth: int) -> int:
    """Put a node into the edge above `below`, inside it at this depth; return its number. O(1)."""
    mark = cache.sizes[NODES]
    cache.sizes[NODES] = mark + 1
    up = cache.prefix_index.parent[below]
    cache.prefix_index.parent[mark] = up
    cache.prefix_index.depth[mark] = depth
    cache.prefix_index.parent[below] = mark
    cache.flags[mark] = cache.flags[below] & (SEEN | RESIDENT | WAS_RESIDENT)
    cache.children[mark] = 0
    cache.child_xor[mark] = 0
    cache.slot[mark] = NONE
    if cache.flags[below] & RESIDENT:
        cache.children[mark] = 1
        cache.child_xor[mark] = below
        cache.child_xor[up] ^= below ^ mark
    return mark


@inner
def node_at(cache: RadixCache, below: int, depth: int) -> int:
    """Return the node at a depth on the path to `below`, which is as deep or deeper; a new one if there is none yet.

    O(nodes between).
    """
    while cache.prefix_index.depth[cache.prefix_index.parent[below]] >= depth:
        below = cache.prefix_index.parent[below]
    return below if cache.prefix_index.depth[below] == depth else _put(cache, below, depth)
