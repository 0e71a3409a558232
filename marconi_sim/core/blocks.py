"""The block cache of `vllm+`: fixed-size blocks, a state at the end of every block, least recently used first out.

Blocks are counted, not listed. An edge of the index owns the full blocks that end on it, at (parent depth, depth].
A look-up touches leading blocks and an insertion touches all blocks of a sequence, so a block is never older than one
behind it, and among equally old ones the deepest goes first. So what is resident of a sequence is always a prefix of
it, all resident blocks of an edge have the same time, and one number is an edge's state: how many are resident.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index import ROOT
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import (
    COLD,
    EVICTIONS,
    GRID,
    KV_EVICTED,
    KV_TOKENS,
    PEAK_BYTES,
    STATES,
    Outcome,
)
from marconi_sim.core.requests import Index, Requests
from marconi_sim.core.seen import SEEN, deepest_seen, mark_seen
from marconi_sim.core.shape import Shape

OLDEST = 0  # the root stands for both ends of the list of edges by last touch: next[0] is the oldest edge,
NEWEST = 0  # previous[0] the newest


class BlockCache(NamedTuple):
    """The state of a block cache.

    flags: uint8 (nodes,). Only SEEN.
    resident: int32 (nodes,). Resident blocks that end on the edge above each node.
    previous, next: int32 (nodes,). Edges with resident blocks from the oldest to the newest touch; of edges touched
        together the deepest is the oldest.
    """

    flags: NDArray[np.uint8]
    resident: NDArray[np.int32]
    previous: NDArray[np.int32]
    next: NDArray[np.int32]


def new_block_cache(nodes: int) -> BlockCache:
    """Return an empty cache over an index of `nodes` nodes."""
    flags = np.zeros(nodes, np.uint8)
    flags[ROOT] = SEEN
    return BlockCache(
        flags=flags,
        resident=np.zeros(nodes, np.int32),
        previous=np.zeros(nodes, np.int32),
        next=np.zeros(nodes, np.int32),
    )


@inner
def _unlink(cache: BlockCache, node: int) -> None:
    cache.next[cache.previous[node]] = cache.next[node]
    cache.previous[cache.next[node]] = cache.previous[node]


@inner
def _link_newest(cache: BlockCache, node: int) -> None:
    newest = cache.previous[NEWEST]
    cache.next[newest] = node
    cache.previous[node] = newest
    cache.next[node] = ROOT
    cache.previous[NEWEST] = node


@inner
def _touch_path(index: Index, cache: BlockCache, node: int) -> None:
    """Make the edges with resident blocks on the path to `node` the newest, the deepest the oldest of them."""
    while node != ROOT:
        if cache.resident[node] > 0:
            _unlink(cache, node)
            _link_newest(cache, node)
        node = index.parent[node]


@inner
def _insert(index: Index, cache: BlockCache, block: int, end_node: int, outcome: Outcome) -> None:
    """Make every full block of a sequence resident and touch them all."""
    node = end_node
    bottom = index.depth[node] // block
    while node != ROOT:
        up = index.parent[node]
        top = index.depth[up] // block
        if bottom > top:
            missing = bottom - top - cache.resident[node]
            if missing < bottom - top:
                _unlink(cache, node)
            outcome.totals[STATES] += missing
            cache.resident[node] = bottom - top
            _link_newest(cache, node)
        node = up
        bottom = top


@inner
def _evict(cache: BlockCache, blocks: int, outcome: Outcome) -> None:
    """Drop the `blocks` least recently used blocks, the deepest of equally old ones first."""
    outcome.totals[EVICTIONS] += blocks
    outcome.totals[STATES] -= blocks
    while blocks > 0:
        node = cache.next[OLDEST]
        dropped = min(blocks, cache.resident[node])
        cache.resident[node] -= dropped
        blocks -= dropped
        if cache.resident[node] == 0:
            _unlink(cache, node)


@kernel
def replay_blocks(
    index: Index,
    cache: BlockCache,
    shape: Shape,
    block: int,
    capacity: int,
    requests: Requests,
    first: int,
    last: int,
    outcome: Outcome,
) -> None:
    """Replay the requests [first, last), in processing order, with blocks of `block` tokens."""
    block_bytes = shape.kv_bytes * block + shape.state_bytes
    for i in range(first, last):
        input_node = requests.input_node[i]
        end_node = requests.end_node[i]
        node = input_node
        while node != ROOT and cache.resident[node] == 0:
            node = index.parent[node]
        reused = 0
        if node != ROOT:
            reused = (index.depth[index.parent[node]] // block + cache.resident[node]) * block
        _touch_path(index, cache, node)

        length = index.depth[input_node]
        seen = index.depth[deepest_seen(index.parent, cache.flags, input_node)]
        mark_seen(index.parent, cache.flags, end_node)
        outcome.matched[i] = reused
        outcome.reused[i] = reused
        outcome.missed[i, COLD] = length - seen
        outcome.missed[i, GRID] = seen % block
        outcome.missed[i, KV_EVICTED] = seen - seen % block - reused

        _insert(index, cache, block, end_node, outcome)
        over = outcome.totals[STATES] * block_bytes - capacity
        if over > 0:
            _evict(cache, (over + block_bytes - 1) // block_bytes, outcome)
        outcome.totals[KV_TOKENS] = outcome.totals[STATES] * block
        outcome.totals[PEAK_BYTES] = max(
            outcome.totals[PEAK_BYTES], outcome.totals[STATES] * block_bytes
        )


@kernel
def audit_blocks(
    index: Index, cache: BlockCache, shape: Shape, block: int, capacity: int, outcome: Outcome
) -> int:
    """Check a block cache against a recount; return 0 or a position in COMPLAINTS. O(nodes)."""
    blocks = 0
    listed = 0
    for node in range(1, index.parent.size):
        if cache.resident[node] == 0:
            continue
        listed += 1
        blocks += cache.resident[node]
        up = index.parent[node]
        top = index.depth[up] // block
        if cache.resident[node] > index.depth[node] // block - top:
            return 6
        while up != ROOT:  # everything above must be resident
            above = index.depth[index.parent[up]] // block
            if cache.resident[up] != index.depth[up] // block - above:
                return 8
            up = index.parent[up]
    if blocks != outcome.totals[STATES]:
        return 4
    if blocks * (shape.kv_bytes * block + shape.state_bytes) > capacity:
        return 5
    node = cache.next[OLDEST]
    while node != ROOT and listed >= 0:
        if cache.resident[node] == 0:
            return 9
        listed -= 1
        node = cache.next[node]
    return 0 if listed == 0 else 9
