"""The block cache of the published code's `vllm+`: the last block of a sequence may be partial.

A full block lies on the edge of the index on which it ends, as in `blocks.py`: one number tells how many of an edge's
are resident. A partial block ends where a sequence ended, at a node of the index: one flag tells whether it is there.
When later tokens are poured into a partial block, it moves down the tree. A partial block has nothing below it and is
never newer than what is above it, so here, too, the least recently used leaf is the deepest of the oldest blocks.

With every switch of `Departures` off this gives exactly the results of `blocks.py`, which is the fast path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.departures import Departures
from marconi_sim.core.index import NONE, ROOT
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


class ArtifactBlocks(NamedTuple):
    """The state of a block cache.

    flags: uint8 (nodes,). Only SEEN.
    resident: int32 (2 nodes,). At n: how many resident full blocks end on the edge above node n. At nodes + n: whether
        a partial block that ends at node n is resident, 0 or 1.
    previous, next: int32 (2 nodes,). Positions of `resident` that are not 0 from the oldest to the newest touch; of
        those touched together the deepest is the oldest. Position 0 stands for both ends: next[0] is the oldest.
    """

    flags: NDArray[np.uint8]
    resident: NDArray[np.int32]
    previous: NDArray[np.int32]
    next: NDArray[np.int32]


class BlockSetting(NamedTuple):
    """What a replay does not change: the model's costs, tokens per block, the switches, bytes."""

    shape: Shape
    block: int
    departures: Departures
    capacity: int


def new_artifact_blocks(nodes: int) -> ArtifactBlocks:
    """Return an empty cache over an index of `nodes` nodes."""
    flags = np.zeros(nodes, np.uint8)
    flags[ROOT] = SEEN
    return ArtifactBlocks(flags, *(np.zeros(2 * nodes, np.int32) for _ in range(3)))


@inner
def _unlink(cache: ArtifactBlocks, entry: int) -> None:
    cache.next[cache.previous[entry]] = cache.next[entry]
    cache.previous[cache.next[entry]] = cache.previous[entry]


@inner
def _link_newest(cache: ArtifactBlocks, entry: int) -> None:
    newest = cache.previous[ROOT]
    cache.next[newest] = entry
    cache.previous[entry] = newest
    cache.next[entry] = ROOT
    cache.previous[ROOT] = entry


@inner
def _bytes_held(outcome: Outcome, shape: Shape) -> int:
    return shape.kv_bytes * outcome.totals[KV_TOKENS] + shape.state_bytes * outcome.totals[STATES]


@inner
def _match(index: Index, cache: ArtifactBlocks, block: int, node: int) -> tuple[int, int]:
    """Return (resident full blocks of the path to `node`, where the partial block after them ends or NONE)."""
    nodes = index.parent.size
    edge = node
    while edge != ROOT and cache.resident[edge] == 0:
        edge = index.parent[edge]
    full = 0
    if edge != ROOT:
        full = index.depth[index.parent[edge]] // block + cache.resident[edge]
    # Of several, the published code takes the first. That is the longest: a new one appears only where none fits.
    while index.depth[node] > full * block:
        if index.depth[node] < (full + 1) * block and cache.resident[nodes + node] > 0:
            return full, node
        node = index.parent[node]
    return full, NONE


@inner
def _touch_full_blocks(index: Index, cache: ArtifactBlocks, node: int) -> None:
    """Make the full blocks on the path to `node` the newest, the deepest the oldest of them."""
    while node != ROOT:
        if cache.resident[node] > 0:
            _unlink(cache, node)
            _link_newest(cache, node)
        node = index.parent[node]


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
def _drop_partial(
    index: Index, cache: ArtifactBlocks, block: int, node: int, outcome: Outcome
) -> None:
    entry = index.parent.size + node
    _unlink(cache, entry)
    cache.resident[entry] = 0
    outcome.totals[STATES] -= 1
    outcome.totals[KV_TOKENS] -= index.depth[node] % block


@inner
def _insert(
    index: Index, cache: ArtifactBlocks, setting: BlockSetting, end_node: int, outcome: Outcome
) -> None:
    """Make every block of a sequence resident and touch them all."""
    block = setting.block
    _, partial = _match(index, cache, block, end_node)
    if partial != NONE:  # F2: what follows is poured into it; it appears again below, longer
        _drop_partial(index, cache, block, partial, outcome)
    node = end_node
    bottom = index.depth[node] // block
    if _held_tokens(setting, index.depth[node]) > bottom * block:
        entry = index.parent.size + node
        cache.resident[entry] = 1
        _link_newest(cache, entry)
        outcome.totals[STATES] += 1
        outcome.totals[KV_TOKENS] += index.depth[node] % block
    while node != ROOT:
        up = index.parent[node]
        top = index.depth[up] // block
        if bottom > top:
            missing = bottom - top - cache.resident[node]
            if cache.resident[node] > 0:
                _unlink(cache, node)
            outcome.totals[STATES] += missing
            outcome.totals[KV_TOKENS] += missing * block
            cache.resident[node] = bottom - top
            _link_newest(cache, node)
        node = up
        bottom = top


@inner
def _make_room(
    index: Index, cache: ArtifactBlocks, setting: BlockSetting, wanted: float, outcome: Outcome
) -> None:
    """Evict the least recently used blocks until `wanted` bytes are free; nothing if it is not positive."""
    shape, block, nodes = setting.shape, setting.block, index.parent.size
    freed = 0.0
    while freed < wanted and cache.next[ROOT] != ROOT:
        entry = cache.next[ROOT]
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
            _unlink(cache, entry)


@inner
def _tell_causes(
    index: Index, cache: ArtifactBlocks, block: int, i: int, input_node: int, outcome: Outcome
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
    cache: ArtifactBlocks,
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
        _touch_full_blocks(index, cache, input_node)
        outcome.matched[i] = reused
        outcome.reused[i] = reused
        _tell_causes(index, cache, block, i, input_node, outcome)
        mark_seen(index.parent, cache.flags, end_node)

        if departures.insertion_looks_up:  # A7
            _touch_full_blocks(index, cache, end_node)
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
def audit_artifact_blocks(index: Index, cache: ArtifactBlocks, block: int, outcome: Outcome) -> int:
    """Check a cache against a recount; return 0 or a position in `COMPLAINTS` of `core/audit.py`. O(nodes)."""
    nodes = index.parent.size
    states = 0
    tokens = 0
    entry = cache.next[ROOT]
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
