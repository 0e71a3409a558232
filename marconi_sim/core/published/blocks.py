"""The block cache of the published code's `vllm+`: the last block of a sequence may be partial.

A full block lies on the edge of the index on which it ends, see `block_cache.py`: entry n tells how many of those on
the edge above node n are resident. A partial block ends where a sequence ended, at a node of the index: entry nodes +
n tells whether one that ends at node n is resident, 0 or 1. When later tokens are poured into a partial block, it
moves down the tree. A partial block has nothing below it and is never newer than what is above it, so here, too, the
least recently used leaf is the deepest of the oldest blocks.

With every switch of `Departures` off this gives exactly the results of `blocks.py`, which is the fast path.
"""

from __future__ import annotations

from typing import NamedTuple

from marconi_sim.core.blocks.counts import (
    OLDEST,
    BlockCache,
    blocks_down_to,
    deepest_held,
    empty_cache,
    hold_path,
    link_newest,
    touch_path,
    unlink,
)
from marconi_sim.core.departures import Departures
from marconi_sim.core.index.build import NONE, ROOT
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


class BlockSetting(NamedTuple):
    """What a replay does not change: the model's costs, tokens per block, the switches, bytes."""

    shape: Shape
    block: int
    departures: Departures
    capacity: int


def new_artifact_blocks(nodes: int) -> BlockCache:
    """Return an empty cache over an index of `nodes` nodes."""
    return empty_cache(nodes, 2 * nodes)


@inner
def _bytes_held(outcome: Outcome, shape: Shape) -> int:
    return shape.kv_bytes * outcome.totals[KV_TOKENS] + shape.state_bytes * outcome.totals[STATES]


@inner
def _match(index: Index, cache: BlockCache, block: int, node: int) -> tuple[int, int]:
    """Return (resident full blocks of the path to `node`, where the partial block after them ends or NONE)."""
    nodes = index.parent.size
    full = blocks_down_to(index, cache, block, deepest_held(index, cache, node))
    # Of several, the published code takes the first. That is the longest: a new one appears only where none fits.
    while index.depth[node] > full * block:
        if index.depth[node] < (full + 1) * block and cache.resident[nodes + node] > 0:
            return full, node
        node = index.parent[node]
    return full, NONE


@inner
def _held_tokens(setting: BlockSetting, tokens: int) -> int:
    """Return for how many of a sequence's tokens there are blocks once it has been inserted."""
    if setting.departures.partial_blocks:  # F1
        return tokens
    return tokens - tokens % setting.block


@inner
def _needed(
    index: Index, setting: BlockSetting, end_node: int, full: int, partial: int
) -> tuple[float, float]:
    """Return the bytes that inserting a sequence needs, and how many more the published code believes it needs."""
    shape, block = setting.shape, setting.block
    length = index.depth[end_node]
    held = _held_tokens(setting, length)
    tokens = float(held - full * block)
    states = float((held + block - 1) // block - full)
    if partial != NONE:
        tokens -= index.depth[partial] - full * block
        states -= 1
    needed = shape.kv_bytes * tokens + shape.state_bytes * states
    surplus = 0.0
    if setting.departures.root_counts_as_block:  # F3
        beyond = float(length - block * (full + 1 + (1 if partial != NONE else 0)))
        surplus = shape.kv_bytes * beyond + shape.state_bytes * (beyond / block) - needed
    return needed, surplus


@inner
def _drop_partial(index: Index, cache: BlockCache, block: int, node: int, outcome: Outcome) -> None:
    entry = index.parent.size + node
    unlink(cache, entry)
    cache.resident[entry] = 0
    outcome.totals[STATES] -= 1
    outcome.totals[KV_TOKENS] -= index.depth[node] % block


@inner
def _insert(
    index: Index, cache: BlockCache, setting: BlockSetting, end_node: int, outcome: Outcome
) -> None:
    """Make every block of a sequence resident and touch them all."""
    block = setting.block
    _, partial = _match(index, cache, block, end_node)
    if partial != NONE:  # F2: what follows is poured into it; it appears again below, longer
        _drop_partial(index, cache, block, partial, outcome)
    length = index.depth[end_node]
    if _held_tokens(setting, length) > length - length % block:
        entry = index.parent.size + end_node
        cache.resident[entry] = 1
        link_newest(cache, entry)
        outcome.totals[STATES] += 1
        outcome.totals[KV_TOKENS] += length % block
    added = hold_path(index, cache, block, end_node)
    outcome.totals[STATES] += added
    outcome.totals[KV_TOKENS] += added * block


@inner
def _make_room(
    index: Index, cache: BlockCache, setting: BlockSetting, wanted: float, outcome: Outcome
) -> None:
    """Evict the least recently used blocks until `wanted` bytes are free; nothing if it is not positive."""
    shape, block, nodes = setting.shape, setting.block, index.parent.size
    freed = 0.0
    while freed < wanted and cache.next[OLDEST] != ROOT:
        entry = cache.next[OLDEST]
        outcome.totals[EVICTIONS] += 1
        if entry >= nodes:
            freed += shape.kv_bytes * (index.depth[entry - nodes] % block) + shape.state_bytes
            _drop_partial(index, cache, block, entry - nodes, outcome)
            continue
        freed += shape.kv_bytes * block + shape.state_bytes
        outcome.totals[STATES] -= 1
        outcome.totals[KV_TOKENS] -= block
        cache.resident[entry] -= 1
        if cache.resident[entry] == 0:
            unlink(cache, entry)


@inner
def _tell_causes(
    index: Index, cache: BlockCache, block: int, i: int, input_node: int, outcome: Outcome
) -> None:
    length, reused = index.depth[input_node], outcome.reused[i]
    seen = index.depth[deepest_seen(index.parent, cache.flags, input_node)]
    reusable = max(seen - seen % block, reused)
    outcome.missed[i, COLD] = length - seen
    outcome.missed[i, GRID] = seen - reusable
    outcome.missed[i, KV_EVICTED] = reusable - reused


@kernel
def replay_artifact_blocks(
    index: Index,
    cache: BlockCache,
    setting: BlockSetting,
    requests: Requests,
    first: int,
    last: int,
    outcome: Outcome,
) -> None:
    """Replay the requests [first, last) in processing order."""
    shape, block, departures = setting.shape, setting.block, setting.departures
    for i in range(first, last):
        input_node = requests.input_node[i]
        end_node = requests.end_node[i]
        full, partial = _match(index, cache, block, input_node)
        reused = index.depth[partial] if partial != NONE else full * block
        touch_path(index, cache, input_node)
        outcome.matched[i] = reused
        outcome.reused[i] = reused
        _tell_causes(index, cache, block, i, input_node, outcome)
        mark_seen(index.parent, cache.flags, end_node)

        if departures.insertion_looks_up:  # A7
            touch_path(index, cache, end_node)
        full, partial = _match(index, cache, block, end_node)
        needed, surplus = _needed(index, setting, end_node, full, partial)
        wanted = surplus - setting.capacity
        if departures.room_made_first:  # C9
            wanted += _bytes_held(outcome, shape) + needed
            _make_room(index, cache, setting, wanted, outcome)
            _insert(index, cache, setting, end_node, outcome)
        else:
            _insert(index, cache, setting, end_node, outcome)
            wanted += _bytes_held(outcome, shape)
            _make_room(index, cache, setting, wanted, outcome)
        outcome.totals[PEAK_BYTES] = max(outcome.totals[PEAK_BYTES], _bytes_held(outcome, shape))


@kernel
def audit_artifact_blocks(index: Index, cache: BlockCache, block: int, outcome: Outcome) -> int:
    """Check a cache against a recount; return 0 or a position in `COMPLAINTS` of `core/radix/audit.py`. O(nodes)."""
    nodes = index.parent.size
    states = 0
    tokens = 0
    entry = cache.next[OLDEST]
    while entry != ROOT:
        count = cache.resident[entry]
        node = entry % nodes
        bottom = index.depth[node] // block
        if count <= 0 or cache.next[cache.previous[entry]] != entry:
            return 9
        states += count
        tokens += count * block if entry < nodes else index.depth[node] % block
        if entry < nodes and count > bottom - index.depth[index.parent[node]] // block:
            return 6
        if states > outcome.totals[STATES]:
            return 4
        full, _ = _match(index, cache, block, node)
        if entry >= nodes and full != bottom:
            return 8
        entry = cache.next[entry]
    return 0 if states == outcome.totals[STATES] and tokens == outcome.totals[KV_TOKENS] else 4
