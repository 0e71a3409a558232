"""Which request continues which, where a log shows the blocks of inputs but no conversations.

Outputs are not in such a log either. The rule, for requests in order of arrival: request B
continues an earlier request A if

1. B's full blocks begin with all of A's full blocks, at least one;
2. B's input is longer than A's input and output together, so that the output fits in between;
3. A's last full block belongs to one conversation: all inputs that go on behind it with a full
   block go on with the same one. Where they do not (a prompt shared by many conversations), nothing
   tells which of them continues A;
4. A is not continued by a request before B, and of all such A, B continues the one that has the
   most full blocks in common with it; among equals the longest, input and output together; among
   equals the latest.

Then B's input contains A's output, and A's sequence is a prefix of B's input. This is inferred: a
log of block hashes cannot prove it.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.trace.compiled.build import Request, build

Blocks = NDArray[np.int64]


def continued_by(
    full_blocks: Sequence[Blocks],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    arrival: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return for each of n requests the request that continues it, or NONE; int64 (n,).

    Args:
        full_blocks: ids of the blocks that the input fills, of each request.
        input_tokens: int64 (n,).
        output_tokens: int64 (n,).
        arrival: float64 (n,). Only later requests continue a request.
    """
    successor = np.full(len(full_blocks), NONE, np.int64)
    order = [int(i) for i in np.argsort(arrival, kind="stable") if full_blocks[i].size > 0]
    if not order:
        return successor
    # The index of the full blocks, one symbol a token: its nodes are where inputs end or part.
    index = build((Request("", 0, full_blocks[i], full_blocks[i].size, 0) for i in order), {})
    node_of = dict(zip(order, index.input_node.tolist(), strict=True))
    parent = index.parent.tolist()
    children = np.bincount(index.parent[1:], minlength=index.parent.size).tolist()
    # node -> (tokens of the sequence, request) of requests that end there uncontinued, sorted
    waiting: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for later in order:
        node = node_of[later]
        while node != ROOT:
            candidates = waiting.get(node, [])
            at = bisect.bisect_left(candidates, (int(input_tokens[later]), -1)) - 1
            while at >= 0 and arrival[candidates[at][1]] == arrival[later]:
                at -= 1
            if at >= 0:
                successor[candidates.pop(at)[1]] = later
                break
            node = parent[node]
        if children[node_of[later]] <= 1:
            entry = (int(input_tokens[later] + output_tokens[later]), later)
            bisect.insort(waiting[node_of[later]], entry)
    return successor


def conversations(successor: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each request's chain of continuations, as its first request, and turn in it; int64."""
    first = np.arange(successor.size)
    turn = np.zeros(successor.size, np.int64)
    continues = np.full(successor.size, NONE, np.int64)
    continues[successor[successor != NONE]] = np.flatnonzero(successor != NONE)
    for request in np.flatnonzero(continues == NONE):
        position, at = 0, int(successor[request])
        while at != NONE:
            position += 1
            first[at], turn[at] = request, position
            at = int(successor[at])
    return first, turn


def sequences(
    blocks: Sequence[Blocks],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    successor: NDArray[np.int64],
    block: int,
) -> list[Blocks]:
    """Return the symbols of each request: of all of it if it is continued, else of its input.

    A request that is continued takes its symbols from its successor's input. An input that ends
    inside a block and equals one that is continued takes the same block, so that equal inputs stay
    equal.

    Args:
        blocks: ids of the ceil(input / block) blocks that each input touches; the last one may be
            partly filled.
        input_tokens: int64 (n,).
        output_tokens: int64 (n,).
        successor: int64 (n,), from `continued_by`.
        block: tokens per block.
    """
    # A partly filled block is known by its id and the input's length, which grows along a chain.
    completed: dict[tuple[int, int], tuple[int, int]] = {}
    for i in np.flatnonzero((successor != NONE) & (input_tokens % block != 0)):
        other = successor[i]
        last = input_tokens[i] // block
        completed.setdefault(
            (int(blocks[i][last]), int(input_tokens[i])),
            (int(blocks[other][last]), int(input_tokens[other])),
        )
    inputs = []
    for ids, length in zip(blocks, input_tokens, strict=True):
        key = (int(ids[-1]), int(length))
        while key in completed and key[1] // block == length // block:
            key = completed[key]
        if key[0] != ids[-1]:
            ids = np.append(ids[:-1], key[0])
        inputs.append(ids)
    result = list(inputs)
    # Successors have longer inputs: going down in length meets them before their predecessors.
    for i in np.argsort(-input_tokens, kind="stable"):
        if successor[i] != NONE:
            length = int(input_tokens[i] + output_tokens[i])
            result[i] = result[successor[i]][: -(-length // block)]
    return result
