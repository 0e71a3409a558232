"""The radix tree of the published code's caches: every node knows its children in the order in which they came.

Like `core/radix/cache.py` it marks the prefix index, whose nodes are where everything happens, but it spells
the cache's tree out, because two departures depend on the order of a walk through it. It is kept for exactness, not for
speed: a search for a victim scans all nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.departures import Departures
from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.index.requests import Index
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import KV_TOKENS, STATES
from marconi_sim.core.radix.cache import HAD_STATE, STATE, WAS_RESIDENT, Rules
from marconi_sim.core.shape import Shape


class Setting(NamedTuple):
    """What a replay does not change.

    shape: the model's costs.
    mlp_linear, mlp_quadratic: float. For a parent at depth p, departure B1 adds mlp_linear * p + mlp_quadratic * p^2
        FLOPs to what a node saves.
    rules: what the policy declares; `max_children` 0 or 1, `touch_path` and `normalised` are used.
    departures: the switches.
    capacity: int. Bytes.
    """

    shape: Shape
    mlp_linear: float
    mlp_quadratic: float
    rules: Rules
    departures: Departures
    capacity: int


# A cache node: last touch; FLOPs saved per byte, NaN until it is computed anew; parent in the cache's tree; number of
# children; the child that came last, NONE if there is none; serial number of its creation. A row is half a cache line:
# the search for a victim reads one after the other, anywhere in memory.
ENTRY = np.dtype(
    [
        ("time", np.float64),
        ("efficiency", np.float64),
        ("above", np.int32),
        ("children", np.int32),
        ("newest", np.int32),
        ("created", np.int32),
    ]
)


class ArtifactTree(NamedTuple):
    """The state of a cache. A *cache node* is an index node that owns itself; all links are between cache nodes.

    flags: uint8 (nodes,). SEEN, WAS_RESIDENT, STATE and HAD_STATE of `core/radix/cache.py`.
    owner: int32 (nodes,). The cache node on whose edge an index node lies; NONE where no KV is resident.
    entry: ENTRY (nodes,). Of each cache node.
    walk: int32 (nodes,). The cache nodes in the order of a depth-first walk that visits older children first, the root
        in front; `size` int64 (1,) tells how many they are. Moving a part of it is cheap beside scanning it.
    candidates: int32 (nodes,), score, value: float64 (nodes,). Scratch of the search for a victim.
    totals: int64 (5,). As in `Outcome`, shared with it.
    clock: int64 (3,). See NOW, CREATED and ROUNDS.
    """

    flags: NDArray[np.uint8]
    owner: NDArray[np.int32]
    entry: NDArray[np.void]
    walk: NDArray[np.int32]
    size: NDArray[np.int64]
    candidates: NDArray[np.int32]
    score: NDArray[np.float64]
    value: NDArray[np.float64]
    totals: NDArray[np.int64]
    clock: NDArray[np.int64]


# Positions in `ArtifactTree.clock`: time, next serial number of a cache node, and how often room had to be made.
NOW, CREATED, ROUNDS = range(3)


def new_artifact_tree(nodes: int, totals: NDArray[np.int64]) -> ArtifactTree:
    """Return an empty cache over an index of `nodes` nodes."""
    flags = np.zeros(nodes, np.uint8)
    flags[ROOT] = SEEN | WAS_RESIDENT
    owner = np.full(nodes, NONE, np.int32)
    owner[ROOT] = ROOT
    entry = np.zeros(nodes, ENTRY)
    entry["above"] = NONE
    entry["newest"] = NONE
    walk = np.empty(nodes, np.int32)
    walk[0] = ROOT
    return ArtifactTree(
        flags=flags,
        owner=owner,
        entry=entry,
        walk=walk,
        size=np.ones(1, np.int64),
        candidates=np.empty(nodes, np.int32),
        score=np.empty(nodes, np.float64),
        value=np.empty(nodes, np.float64),
        totals=totals,
        clock=np.zeros(3, np.int64),
    )


def copy_artifact_tree(tree: ArtifactTree) -> ArtifactTree:
    """Return an independent copy."""
    return ArtifactTree(*(array.copy() for array in tree))


@inner
def bytes_held(tree: ArtifactTree, shape: Shape) -> int:
    """Return the bytes that the cache holds now."""
    return shape.kv_bytes * tree.totals[KV_TOKENS] + shape.state_bytes * tree.totals[STATES]


@inner
def deepest_resident(index: Index, tree: ArtifactTree, node: int) -> int:
    """Return the index node where the resident part of the path to `node` ends."""
    while tree.owner[node] == NONE:
        node = index.parent[node]
    return node


@inner
def _position(tree: ArtifactTree, node: int) -> int:
    position = 0
    while tree.walk[position] != node:
        position += 1
    return position


@inner
def _enter_walk(tree: ArtifactTree, node: int, position: int) -> None:
    for i in range(tree.size[0], position, -1):
        tree.walk[i] = tree.walk[i - 1]
    tree.walk[position] = node
    tree.size[0] += 1


@inner
def _leave_walk(tree: ArtifactTree, position: int) -> None:
    tree.size[0] -= 1
    for i in range(position, tree.size[0]):
        tree.walk[i] = tree.walk[i + 1]


@inner
def _hang(tree: ArtifactTree, node: int, parent: int) -> None:
    tree.entry[node]["above"] = parent
    tree.entry[node]["efficiency"] = np.nan


@inner
def _replace_child(tree: ArtifactTree, child: int, other: int) -> None:
    """Give the place of `child` among its siblings to `other`."""
    parent = tree.entry[child]["above"]
    _hang(tree, other, parent)
    if tree.entry[parent]["newest"] == child:
        tree.entry[parent]["newest"] = other


@inner
def _append_child(tree: ArtifactTree, parent: int, child: int) -> None:
    """Make `child`, a new leaf, the newest child."""
    last = parent
    while tree.entry[last]["newest"] != NONE:
        last = tree.entry[last]["newest"]
    _enter_walk(tree, child, _position(tree, last) + 1)
    _hang(tree, child, parent)
    tree.entry[child]["children"] = 0
    tree.entry[child]["newest"] = NONE
    tree.entry[parent]["newest"] = child
    tree.entry[parent]["children"] += 1


@inner
def _remove_child(tree: ArtifactTree, leaf: int) -> None:
    parent = tree.entry[leaf]["above"]
    position = _position(tree, leaf)
    tree.entry[parent]["children"] -= 1
    if tree.entry[parent]["newest"] == leaf:
        sibling = tree.walk[position - 1]  # the last node below the older sibling, or the parent
        while sibling != parent and tree.entry[sibling]["above"] != parent:
            sibling = tree.entry[sibling]["above"]
        tree.entry[parent]["newest"] = sibling if sibling != parent else NONE
    _leave_walk(tree, position)


@inner
def _own_upwards(index: Index, tree: ArtifactTree, node: int, old: int, new: int) -> None:
    """Give the index nodes from `node` up that `old` owns to `new`."""
    while tree.owner[node] == old:
        tree.owner[node] = new
        node = index.parent[node]


@inner
def _name(tree: ArtifactTree, node: int) -> None:
    """Note when a new cache node came."""
    tree.entry[node]["time"] = tree.clock[NOW]
    tree.entry[node]["created"] = tree.clock[CREATED]
    tree.clock[CREATED] += 1


@inner
def split(index: Index, tree: ArtifactTree, node: int) -> None:
    """Put a cache node without a state at an index node inside an edge; it takes its child's place among siblings."""
    below = tree.owner[node]
    _replace_child(tree, below, node)
    _enter_walk(tree, node, _position(tree, below))
    tree.entry[node]["children"] = 1
    tree.entry[node]["newest"] = below
    _hang(tree, below, node)
    _own_upwards(index, tree, node, below, node)
    _name(tree, node)


@inner
def add_leaf(index: Index, tree: ArtifactTree, node: int) -> None:
    """Make the path to an index node resident; what is above its new part must be a cache node."""
    up = node
    while tree.owner[up] == NONE:
        tree.owner[up] = node
        tree.flags[up] |= WAS_RESIDENT
        up = index.parent[up]
    _append_child(tree, up, node)
    tree.totals[KV_TOKENS] += index.depth[node] - index.depth[up]
    _name(tree, node)


@inner
def checkpoint(index: Index, tree: ArtifactTree, node: int) -> None:
    """Store a recurrent state at a resident index node, which becomes a cache node if it is none."""
    if tree.owner[node] != node:
        split(index, tree, node)
    if not tree.flags[node] & STATE:
        tree.flags[node] |= STATE | HAD_STATE
        tree.entry[node]["efficiency"] = np.nan
        tree.totals[STATES] += 1


@inner
def _merge_into_child(index: Index, tree: ArtifactTree, departures: Departures, node: int) -> None:
    child = tree.entry[node]["newest"]
    if departures.merge_keeps_later:  # C5
        tree.entry[child]["time"] = max(tree.entry[child]["time"], tree.entry[node]["time"])
    _replace_child(tree, node, child)
    _leave_walk(tree, _position(tree, node))
    _own_upwards(index, tree, node, node, child)


@inner
def remove(index: Index, tree: ArtifactTree, departures: Departures, node: int) -> int:
    """Evict a cache node that has at most one child; return the node that is a leaf now because of that, or NONE."""
    while True:
        if tree.flags[node] & STATE:
            tree.flags[node] &= ~STATE
            tree.totals[STATES] -= 1
        if tree.entry[node]["children"] == 1:
            _merge_into_child(index, tree, departures, node)
            return NONE
        up = tree.entry[node]["above"]
        _remove_child(tree, node)
        _own_upwards(index, tree, node, node, NONE)
        tree.totals[KV_TOKENS] -= index.depth[node] - index.depth[up]
        node = up
        # A cache node without a state is there to hold two children together; with one left it goes too.
        if node == ROOT or tree.flags[node] & STATE or tree.entry[node]["children"] > 1:
            return node if node != ROOT and tree.entry[node]["children"] == 0 else NONE
