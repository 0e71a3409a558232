"""The prefix index: a static radix tree over every sequence of a trace.

A sequence is one request's input followed by its output. Every place where two sequences diverge, every end of an input
and every end of an output is a node. Whatever a cache policy does later happens at these nodes, so the tokens are read
once, here.

Sequences are made of *symbols*. A symbol stands for `block` consecutive tokens: 1 for token traces, the block size for
traces of block hashes. Depths are always counted in tokens; an input may end inside a block.

The tree grows by insertion: a sequence walks down as far as it agrees, splits the edge where it stops agreeing or where
it ends, and appends what is new. Only new symbols are stored, so memory is that of the distinct symbols, not of the
trace. The cost is one comparison per symbol, at memory speed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.jit import inner, kernel

NONE = -1
ROOT = 0
_COMPARE = 32  # symbols compared before looking at the result: a fixed count lets LLVM use vector instructions


class GrowingTree(NamedTuple):
    """A radix tree under construction. Arrays have spare room; `size` tells how much is in use.

    parent: int32 (nodes,). Parent node; NONE for the root.
    depth: int32 (nodes,). Tokens from the root to the end of the node's edge.
    start: int64 (nodes,). Where the edge's symbols begin in `symbols`; NONE for an edge of unknown content.
    symbols: int32 or int64 (symbols,). The symbols of all edges; two parts of one split edge share a symbol if the
        split is inside it.
    slots: int32 (a power of two,). Open-addressing hash table (parent, first symbol) -> child; NONE if free. Edges of
        unknown content are not in it: nothing can follow them.
    size: int64 (2,). Number of nodes, number of symbols in use.
    """

    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    start: NDArray[np.int64]
    symbols: NDArray[np.int32] | NDArray[np.int64]
    slots: NDArray[np.int32]
    size: NDArray[np.int64]


@inner
def _hash(node: int, symbol: int, mask: int) -> int:
    """Return the first slot to probe, in [0, mask]."""
    x = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(symbol)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    x = (x ^ (x >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64((x ^ (x >> np.uint64(32))) & np.uint64(mask))


@inner
def _find_slot(tree: GrowingTree, node: int, symbol: int) -> int:
    """Return the slot that holds the child of `node` starting with `symbol`, or the free slot where it belongs."""
    mask = tree.slots.size - 1
    slot = _hash(node, symbol, mask)
    while True:
        child = tree.slots[slot]
        if child == NONE or (
            tree.parent[child] == node and tree.symbols[tree.start[child]] == symbol
        ):
            return slot
        slot = (slot + 1) & mask


@inner
def _common_length(
    a: NDArray[np.int64], a_start: int, b: NDArray[np.int64], b_start: int, length: int
) -> int:
    """Return how many leading symbols of a[a_start:] and b[b_start:] agree, at most `length`."""
    # Unsigned positions spare the wrap-around of negative indices, which would keep the loop scalar.
    i = np.uint64(a_start)
    j = np.uint64(b_start)
    end = i + np.uint64(length)
    width = np.uint64(_COMPARE)
    while i + width <= end:
        difference = a[i] ^ b[j]
        for k in range(np.uint64(_COMPARE)):
            difference |= a[i + k] ^ b[j + k]
        if difference != 0:
            break
        i += width
        j += width
    while i < end and a[i] == b[j]:
        i += np.uint64(1)
        j += np.uint64(1)
    return np.int64(i) - a_start


@inner
def _append_node(tree: GrowingTree, parent: int, depth: int, start: int) -> int:
    node = tree.size[0]
    tree.size[0] = node + 1
    tree.parent[node] = parent
    tree.depth[node] = depth
    tree.start[node] = start
    return node


@inner
def _split(tree: GrowingTree, slot: int, depth: int, block: int) -> int:
    """Put a node at `depth` into the edge of the child in `slot`; return the new node."""
    child = tree.slots[slot]
    parent = tree.parent[child]
    top = tree.depth[parent]
    node = _append_node(tree, parent, depth, tree.start[child])
    tree.slots[slot] = node
    tree.parent[child] = node
    tree.start[child] += depth // block - top // block
    tree.slots[_find_slot(tree, node, tree.symbols[tree.start[child]])] = child
    return node


@inner
def _descend(
    tree: GrowingTree, node: int, symbols: NDArray[np.int64], first: int, length: int, block: int
) -> int:
    """Walk from `node` along the sequence whose symbols start at symbols[first], to a node at depth `length` (tokens).

    Splits and appends what is missing, and returns the node at `length`.
    """
    while True:
        top = tree.depth[node]
        if top == length:
            return node
        position = top // block
        slot = _find_slot(tree, node, symbols[first + position])
        child = tree.slots[slot]
        if child == NONE:
            count = (length - 1) // block + 1 - position
            start = tree.size[1]
            for k in range(count):
                tree.symbols[start + k] = symbols[first + position + k]
            tree.size[1] = start + count
            leaf = _append_node(tree, node, length, start)
            tree.slots[slot] = leaf
            return leaf
        bottom = min(tree.depth[child], length)
        count = (bottom - 1) // block + 1 - position
        same = _common_length(symbols, first + position, tree.symbols, tree.start[child], count)
        if same < count:
            node = _split(tree, slot, (position + same) * block, block)
        elif bottom < tree.depth[child]:
            return _split(tree, slot, bottom, block)
        else:
            node = child


@kernel
def rehash(tree: GrowingTree) -> None:
    """Fill the (empty) hash table from the nodes. O(nodes)."""
    for node in range(1, tree.size[0]):
        if tree.start[node] != NONE:
            slot = _find_slot(tree, tree.parent[node], tree.symbols[tree.start[node]])
            tree.slots[slot] = node


@kernel
def insert_sequences(
    tree: GrowingTree,
    symbols: NDArray[np.int64],
    offsets: NDArray[np.int64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    output_known: NDArray[np.bool_],
    block: int,
    input_node: NDArray[np.int32],
    end_node: NDArray[np.int32],
) -> None:
    """Insert n sequences; write the node at each input's end and at each sequence's end.

    The symbols of sequence i begin at symbols[offsets[i]] and cover input + output, or the input only where
    `output_known[i]` is false: such an output is unlike any other, an edge of unknown content. The caller makes room
    for 4 n nodes, for all symbols, and keeps the hash table at most half full.
    """
    for i in range(input_tokens.size):
        node = _descend(tree, ROOT, symbols, offsets[i], input_tokens[i], block)
        input_node[i] = node
        length = input_tokens[i] + output_tokens[i]
        if output_known[i]:
            end_node[i] = _descend(tree, node, symbols, offsets[i], length, block)
        elif output_tokens[i] > 0:
            end_node[i] = _append_node(tree, node, length, NONE)
        else:
            end_node[i] = node


@kernel
def preorder(
    parent: NDArray[np.int32],
    first_child: NDArray[np.int32],
    next_sibling: NDArray[np.int32],
    rank: NDArray[np.int32],
) -> None:
    """Write each node's position in a depth-first walk, children in order of node number.

    Paths and subtrees become contiguous in memory, and parents come before their children.

    first_child, next_sibling: int32 (nodes,), NONE everywhere; written.
    """
    nodes = parent.size
    for node in range(nodes - 1, 0, -1):
        next_sibling[node] = first_child[parent[node]]
        first_child[parent[node]] = node
    node = ROOT
    for position in range(nodes):
        rank[node] = position
        if first_child[node] != NONE:
            node = first_child[node]
        else:
            while node != ROOT and next_sibling[node] == NONE:
                node = parent[node]
            node = next_sibling[node] if node != ROOT else ROOT


@kernel
def first_bad_request(
    parent: NDArray[np.int32],
    depth: NDArray[np.int32],
    input_node: NDArray[np.int32],
    end_node: NDArray[np.int32],
) -> int:
    """Return the first request whose end is not at or below its input's end, or NONE. O(nodes between the two)."""
    for i in range(input_node.size):
        node = end_node[i]
        while depth[node] > depth[input_node[i]]:
            node = parent[node]
        if node != input_node[i]:
            return i
    return NONE
