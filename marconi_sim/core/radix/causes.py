"""Why the tokens of an input that were not reused had to be computed (DESIGN section 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.requests import Index
from marconi_sim.core.index.seen import deepest_seen
from marconi_sim.core.jit import inner
from marconi_sim.core.outcome import (
    COLD,
    GRID,
    KV_EVICTED,
    NO_CHECKPOINT,
    NOT_ADMITTED,
    STATE_EVICTED,
)
from marconi_sim.core.radix.cache import HAD_STATE, WAS_RESIDENT


@inner
def tell_causes(
    index: Index,
    flags: NDArray[np.uint8],
    input_node: int,
    matched: int,
    reused: int,
    grid: int,
    missed: NDArray[np.int32],
) -> None:
    """Write why each token of an input beyond the reused ones is computed.

    flags: uint8 (nodes,), SEEN and the bits of `RadixCache.flags`.
    matched, reused: nodes of the index.
    grid: states lie at multiples of so many tokens only; what is beyond the last of them in `matched` is lost to it.
    missed: int32 (causes,), written.
    """
    parent, depth = index
    seen = deepest_seen(parent, flags, input_node)
    node = seen
    while not flags[node] & WAS_RESIDENT:
        node = parent[node]
    missed[COLD] = depth[input_node] - depth[seen]
    missed[NOT_ADMITTED] = depth[seen] - depth[node]
    missed[KV_EVICTED] = depth[node] - depth[matched]
    node = matched
    while node != reused and not flags[node] & HAD_STATE:
        node = parent[node]
    rounded = depth[matched]
    if grid > 1:  # a division takes longer than all the rest
        rounded = max(depth[node], rounded - rounded % grid)
    missed[GRID] = depth[matched] - rounded
    missed[NO_CHECKPOINT] = rounded - depth[node]
    missed[STATE_EVICTED] = depth[node] - depth[reused]
