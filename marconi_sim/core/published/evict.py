"""Which node the published code evicts, and how many bytes it believes that frees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE
from marconi_sim.core.index.requests import Index
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import EVICTIONS
from marconi_sim.core.published.tree import (
    NOW,
    ROUNDS,
    ArtifactTree,
    Setting,
    bytes_held,
    remove,
)
from marconi_sim.core.radix.cache import STATE
from marconi_sim.core.shape import prefill_flops


@inner
def _collect(tree: ArtifactTree, max_children: int, left_out: int) -> int:
    """List the nodes that may be evicted, in the order of a walk, with last touch and efficiency; return how many."""
    count = 0
    for i in range(1, tree.size[0]):
        node = tree.walk[i]
        entry = tree.entry[node]
        if entry["children"] <= max_children and node != left_out:
            tree.candidates[count] = node
            tree.score[count] = entry["time"]
            tree.value[count] = entry["efficiency"]
            count += 1
    return count


@inner
def _efficiency(index: Index, tree: ArtifactTree, setting: Setting, node: int) -> float:
    """Return the FLOPs that reusing a node saves beyond its parent, per byte."""
    shape, departures = setting.shape, setting.departures
    depth = index.depth[node]
    parent_depth = index.depth[tree.entry[node]["above"]]
    flops = prefill_flops(shape, depth) - prefill_flops(shape, parent_depth)
    if departures.mlp_minus_attention:  # B1
        flops += parent_depth * (setting.mlp_linear + setting.mlp_quadratic * parent_depth)
    tokens = depth - parent_depth
    if departures.whole_prefix_bytes:  # B2
        tokens = depth
    size = shape.kv_bytes * tokens
    if tree.flags[node] & STATE:
        size += shape.state_bytes
    return flops / size if size > 0 else 0.0


@inner
def _normalise(values: NDArray[np.float64], count: int) -> None:
    """Scale values[:count] from 0 to 1 in place; equal ones become 1."""
    low, high = np.inf, -np.inf
    for i in range(count):
        if values[i] < low:
            low = values[i]
        if values[i] > high:
            high = values[i]
    if low == high:
        values[:count] = 1.0
        return
    for i in range(count):
        values[i] = (values[i] - low) / (high - low)


@inner
def _score_all(
    index: Index, tree: ArtifactTree, setting: Setting, alpha: float, count: int
) -> None:
    """Turn every candidate's last touch into its score; that adds alpha times its efficiency if both are normalised."""
    if not setting.rules.normalised:
        return
    if (
        setting.departures.inverse_age
    ):  # C2. Without C14 an age may be 0, which the code would divide by.
        for i in range(count):
            tree.score[i] = 1.0 / max(tree.clock[NOW] - tree.score[i], 1.0)
    _normalise(tree.score, count)
    if alpha == 0:
        return
    for i in range(count):
        if np.isnan(tree.value[i]):
            node = tree.candidates[i]
            tree.value[i] = tree.entry[node]["efficiency"] = _efficiency(index, tree, setting, node)
    _normalise(tree.value, count)
    for i in range(count):
        tree.score[i] += alpha * tree.value[i]


@inner
def _ranks_before(index: Index, tree: ArtifactTree, node: int, other: int) -> bool:
    """Tell which of two nodes with equal scores the paper's rules evict: the shallower one, then the older one."""
    if index.depth[node] != index.depth[other]:
        return index.depth[node] < index.depth[other]
    return tree.entry[node]["created"] < tree.entry[other]["created"]


@inner
def _scan(index: Index, tree: ArtifactTree, setting: Setting, count: int) -> int:
    """Return the candidate with the lowest score."""
    best = 0
    for i in range(1, count):
        if tree.score[i] < tree.score[best] or (
            tree.score[i] == tree.score[best]
            and not setting.departures.tree_order_ties  # C4
            and _ranks_before(index, tree, tree.candidates[i], tree.candidates[best])
        ):
            best = i
    return tree.candidates[best]


# The published `sglang+` takes leaves from a binary heap, that of Python's library: which of several equally old leaves
# comes first depends on how it sifts.


@inner
def _sift_up(tree: ArtifactTree, position: int, top: int) -> None:
    """Move the entry at `position` towards `top` while it is older than the one above."""
    node = tree.candidates[position]
    while position > top:
        up = (position - 1) // 2
        if not tree.entry[node]["time"] < tree.entry[tree.candidates[up]]["time"]:
            break
        tree.candidates[position] = tree.candidates[up]
        position = up
    tree.candidates[position] = node


@inner
def _sift_down(tree: ArtifactTree, position: int, count: int) -> None:
    """Move the entry at `position` to the bottom along the older entries, then up to its place."""
    node, top = tree.candidates[position], position
    child = 2 * position + 1
    while child < count:
        right = child + 1
        if right < count and not (
            tree.entry[tree.candidates[child]]["time"] < tree.entry[tree.candidates[right]]["time"]
        ):
            child = right
        tree.candidates[position] = tree.candidates[child]
        position = child
        child = 2 * position + 1
    tree.candidates[position] = node
    _sift_up(tree, position, top)


@inner
def _heapify(tree: ArtifactTree, count: int) -> None:
    for position in range(count // 2 - 1, -1, -1):
        _sift_down(tree, position, count)


@inner
def _pop(tree: ArtifactTree, count: int) -> int:
    """Take the oldest leaf from a heap of `count` entries."""
    oldest = tree.candidates[0]
    tree.candidates[0] = tree.candidates[count - 1]
    if count > 1:
        _sift_down(tree, 0, count - 1)
    return oldest


@inner
def make_room(
    index: Index, tree: ArtifactTree, setting: Setting, alpha: float, end_node: int, wanted: float
) -> None:
    """Evict one node after another until `wanted` bytes are believed to be free; nothing if it is not positive."""
    if wanted <= 0:
        return
    shape, rules, departures = setting.shape, setting.rules, setting.departures
    tree.clock[ROUNDS] += 1
    tree.clock[NOW] += departures.extra_ticks  # C14
    left_out = NONE if departures.end_competes else end_node  # A11
    heap = departures.tree_order_ties and rules.max_children == 0  # C15
    count = 0
    if heap:
        count = _collect(tree, 0, left_out)
        _heapify(tree, count)
    freed = 0
    while freed < wanted:
        if not heap:
            count = _collect(tree, rules.max_children, left_out)
        if count > 0 and heap:
            victim = last_scanned = _pop(tree, count)
            count -= 1
        elif count > 0:
            _score_all(index, tree, setting, alpha, count)
            victim = _scan(index, tree, setting, count)
            last_scanned = tree.candidates[count - 1] if rules.max_children > 0 else victim
        elif tree.owner[end_node] == end_node:
            victim = last_scanned = end_node
        else:
            return
        held = bytes_held(tree, shape)
        of_last = index.depth[last_scanned] - index.depth[tree.entry[last_scanned]["above"]]
        leaf = tree.entry[victim]["children"] == 0
        new_leaf = remove(index, tree, departures, victim)
        tree.totals[EVICTIONS] += 1
        if departures.last_scanned_freed and leaf:  # C1
            freed += shape.kv_bytes * of_last + shape.state_bytes
        else:
            freed += held - bytes_held(tree, shape)
        if heap and new_leaf != NONE and new_leaf != left_out:
            tree.candidates[count] = new_leaf
            _sift_up(tree, count, 0)
            count += 1
