"""What an infinite cache could reuse of a trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.seen import SEEN, deepest_seen, mark_seen
from marconi_sim.core.jit import kernel


@kernel
def reuse(
    parent: NDArray[np.int32],
    depth: NDArray[np.int32],
    input_node: NDArray[np.int32],
    end_node: NDArray[np.int32],
    order: NDArray[np.int64],
    flags: NDArray[np.uint8],
    seen: NDArray[np.int64],
) -> int:
    """Write the tokens of each input that were seen before; return the distinct tokens.

    order: int64 (n,). Rows of `input_node` and `end_node`, in order of time.
    flags: uint8 (nodes,), SEEN for the root and 0 elsewhere; written.
    seen: int64 (n,), written. Tokens of the input of request order[i].
    Distinct tokens are those on the edges that the sequences use. O(nodes + n).
    """
    for i in range(order.size):
        seen[i] = depth[deepest_seen(parent, flags, input_node[order[i]])]
        mark_seen(parent, flags, end_node[order[i]])
    distinct = 0
    for node in range(1, parent.size):
        if flags[node] & SEEN:
            distinct += depth[node] - depth[parent[node]]
    return distinct
