"""What an infinite memory would remember: how much of an input any earlier sequence has shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.jit import inner

SEEN = np.uint8(
    1
)  # bit of a node's flags: an earlier sequence passed it. The root has it from the start.


@inner
def deepest_seen(parent: NDArray[np.int32], flags: NDArray[np.uint8], node: int) -> int:
    """Return the deepest node on the path to `node` that an earlier sequence passed."""
    while not flags[node] & SEEN:
        node = parent[node]
    return node


@inner
def mark_seen(parent: NDArray[np.int32], flags: NDArray[np.uint8], end: int) -> None:
    """Remember a sequence. O(nodes not passed before)."""
    node = end
    while not flags[node] & SEEN:
        flags[node] |= SEEN
        node = parent[node]
