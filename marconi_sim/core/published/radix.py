"""Replay of the radix-tree policies under the rules of the published code, or of anything between it and the paper.

With every switch of `Departures` off this gives exactly the results of `replay_radix.py`, which is the fast path.
"""

from __future__ import annotations

from marconi_sim.core.departures import Departures
from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.index.seen import mark_seen
from marconi_sim.core.jit import inner, kernel
from marconi_sim.core.outcome import BYPASSED, KV_TOKENS, PEAK_BYTES, STATES, Outcome
from marconi_sim.core.published.evict import make_room
from marconi_sim.core.published.tree import (
    NOW,
    ROUNDS,
    ArtifactTree,
    Setting,
    add_leaf,
    bytes_held,
    checkpoint,
    deepest_resident,
    split,
)
from marconi_sim.core.radix.cache import STATE
from marconi_sim.core.radix.causes import tell_causes


@inner
def _deepest_state(index: Index, tree: ArtifactTree, node: int) -> int:
    """Return the deepest node with a state on the resident path to `node`, or the root."""
    while node != ROOT and not tree.flags[node] & STATE:
        node = index.parent[node]
    return node


@inner
def _touch(index: Index, tree: ArtifactTree, setting: Setting, node: int) -> None:
    """Refresh what a look-up of the path to `node` refreshes."""
    matched = deepest_resident(index, tree, node)
    if not setting.rules.touch_path:
        tree.entry[_deepest_state(index, tree, matched)]["time"] = tree.clock[NOW]
        return
    node = tree.owner[matched]
    if node != matched and not setting.departures.partial_match_touched:  # A8
        node = tree.entry[node]["above"]
    while node != ROOT:
        tree.entry[node]["time"] = tree.clock[NOW]
        node = tree.entry[node]["above"]


@inner
def _branch_point(
    index: Index, tree: ArtifactTree, departures: Departures, branch: int, end_node: int
) -> int:
    """Return the node to checkpoint beside the sequence's end, given what the look-up of the input said, or NONE."""
    if departures.branch_in_output:  # A2
        left = deepest_resident(index, tree, end_node)
        return NONE if tree.owner[left] == left else left
    return branch


@inner
def _wanted(
    index: Index, tree: ArtifactTree, setting: Setting, end_node: int, branch: int
) -> tuple[int, int]:
    """Return the bytes that an insertion needs, and how many more the published code believes it needs."""
    shape, departures = setting.shape, setting.departures
    left = deepest_resident(index, tree, end_node)
    held = tree.owner[end_node] == end_node and tree.flags[end_node] & STATE
    states = 0 if held else 1
    if branch != NONE and branch != end_node:
        states += 1
    surplus = 0
    if departures.prefix_costs_two_states and left == end_node and tree.owner[left] != left:  # A3
        surplus += shape.state_bytes
    if departures.repeat_costs_a_state and held:  # A4
        surplus += shape.state_bytes
    tokens = index.depth[end_node] - index.depth[left]
    return shape.kv_bytes * tokens + shape.state_bytes * states, surplus


@inner
def _add(
    index: Index, tree: ArtifactTree, setting: Setting, end_node: int, branch: int, refreshed: bool
) -> None:
    """Make a sequence resident with its states. `refreshed`: a state found at its end has been touched already."""
    left = deepest_resident(index, tree, end_node)
    if left != end_node:
        if tree.owner[left] != left:
            split(index, tree, left)
        add_leaf(index, tree, end_node)
    if branch != NONE:
        checkpoint(index, tree, branch)
        tree.entry[branch]["time"] = tree.clock[NOW]
    held = tree.owner[end_node] == end_node and tree.flags[end_node] & STATE
    checkpoint(index, tree, end_node)
    if not (held and refreshed):
        tree.entry[end_node]["time"] = tree.clock[NOW]
    if setting.rules.touch_path:
        _touch(index, tree, setting, end_node)


@inner
def _insert(
    index: Index, tree: ArtifactTree, setting: Setting, alpha: float, end_node: int, branch: int
) -> None:
    """Insert a finished sequence and evict what must go."""
    shape, departures, capacity = setting.shape, setting.departures, setting.capacity
    too_large = shape.kv_bytes * index.depth[end_node] + shape.state_bytes > capacity
    if too_large and not departures.oversized_inserted:  # C8
        tree.totals[BYPASSED] += 1
        return
    tree.clock[NOW] += departures.extra_ticks  # C14
    if departures.insertion_looks_up:  # A7
        _touch(index, tree, setting, end_node)
    found = _branch_point(index, tree, departures, branch, end_node)
    needed, surplus = _wanted(index, tree, setting, end_node, found)
    if departures.room_made_first:  # C9
        wanted = bytes_held(tree, shape) + needed + surplus - capacity
        make_room(index, tree, setting, alpha, end_node, wanted)
        found = _branch_point(index, tree, departures, branch, end_node)
    _add(index, tree, setting, end_node, found, departures.insertion_looks_up)
    if not departures.room_made_first:
        wanted = bytes_held(tree, shape) + surplus - capacity
        make_room(index, tree, setting, alpha, end_node, wanted)


@kernel
def replay_artifact_radix(
    index: Index,
    tree: ArtifactTree,
    setting: Setting,
    alpha: float,
    requests: Requests,
    first: int,
    last: int,
    until_eviction: bool,
    outcome: Outcome,
) -> int:
    """Replay the requests [first, last) in processing order; return the number of the next request.

    With `until_eviction` the replay stops after the first request for which room had to be made.
    """
    for i in range(first, last):
        input_node = requests.input_node[i]
        end_node = requests.end_node[i]
        tree.clock[NOW] += 1
        matched = deepest_resident(index, tree, input_node)
        reused = _deepest_state(index, tree, matched)
        branch = NONE if tree.owner[matched] == matched else matched
        _touch(index, tree, setting, input_node)
        outcome.matched[i] = index.depth[matched]
        outcome.reused[i] = index.depth[reused]
        tell_causes(index, tree.flags, input_node, matched, reused, 1, outcome.missed[i])
        mark_seen(index.parent, tree.flags, end_node)
        tree.clock[NOW] += 1
        rounds = tree.clock[ROUNDS]
        _insert(index, tree, setting, alpha, end_node, branch)
        held = bytes_held(tree, setting.shape)
        tree.totals[PEAK_BYTES] = max(tree.totals[PEAK_BYTES], held)
        if until_eviction and tree.clock[ROUNDS] > rounds:
            return i + 1
    return last


@kernel
def audit_artifact_radix(index: Index, tree: ArtifactTree) -> int:
    """Check a cache against a recount; return 0 or a position in `COMPLAINTS` of `core/radix/audit.py`. O(nodes)."""
    tokens = 0
    states = 0
    for i in range(1, tree.size[0]):
        node = tree.walk[i]
        if tree.owner[node] != node:
            return 8
        tokens += index.depth[node] - index.depth[tree.entry[node]["above"]]
        states += 1 if tree.flags[node] & STATE else 0
        if not tree.flags[node] & STATE and tree.entry[node]["children"] < 2:
            return 7
    if tokens != tree.totals[KV_TOKENS] or states != tree.totals[STATES]:
        return 4
    for node in range(1, index.parent.size):
        if tree.flags[node] & STATE and tree.owner[node] != node:
            return 8
        up = index.parent[node]
        if tree.owner[node] != NONE and tree.owner[up] == NONE:
            return 8
        if (
            tree.owner[node] == node
            and tree.owner[up] != node
            and tree.owner[up] != tree.entry[node]["above"]
        ):
            return 6
    return 0
