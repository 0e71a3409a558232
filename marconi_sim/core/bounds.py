"""The two ends of what any policy can do: reuse nothing, and reuse every token ever seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.index.seen import deepest_seen, mark_seen
from marconi_sim.core.jit import kernel
from marconi_sim.core.outcome import COLD, NOT_ADMITTED, Outcome


@kernel
def replay_bound(
    index: Index,
    flags: NDArray[np.uint8],
    everything: bool,
    requests: Requests,
    first: int,
    last: int,
    outcome: Outcome,
) -> None:
    """Replay the requests [first, last): every token seen before is reused, or none is.

    flags: uint8 (nodes,), SEEN set at the root.
    """
    for i in range(first, last):
        input_node = requests.input_node[i]
        seen = index.depth[deepest_seen(index.parent, flags, input_node)]
        mark_seen(index.parent, flags, requests.end_node[i])
        outcome.missed[i, COLD] = index.depth[input_node] - seen
        if everything:
            outcome.matched[i] = seen
            outcome.reused[i] = seen
        else:
            outcome.missed[i, NOT_ADMITTED] = seen
