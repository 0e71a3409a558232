"""The block cache of `vllm+`: fixed-size blocks, a state at the end of every block, least recently used first out.

Its entries are the edges of the index, see `block_cache.py`.
"""

from __future__ import annotations

from marconi_sim.core.blocks.counts import (
    OLDEST,
    BlockCache,
    blocks_down_to,
    deepest_held,
    empty_cache,
    hold_path,
    touch_path,
    unlink,
)
from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.index.seen import deepest_seen, mark_seen
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
from marconi_sim.core.shape import Shape


def new_block_cache(nodes: int) -> BlockCache:
    """Return an empty cache over an index of `nodes` nodes."""
    return empty_cache(nodes, nodes)


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
            unlink(cache, node)


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
        edge = deepest_held(index, cache, input_node)
        reused = blocks_down_to(index, cache, block, edge) * block
        touch_path(index, cache, edge)

        length = index.depth[input_node]
        seen = index.depth[deepest_seen(index.parent, cache.flags, input_node)]
        mark_seen(index.parent, cache.flags, end_node)
        outcome.matched[i] = reused
        outcome.reused[i] = reused
        outcome.missed[i, COLD] = length - seen
        outcome.missed[i, GRID] = seen % block
        outcome.missed[i, KV_EVICTED] = seen - seen % block - reused

        outcome.totals[STATES] += hold_path(index, cache, block, end_node)
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
