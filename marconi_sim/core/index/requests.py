"""What a replay reads: the prefix index and the requests in processing order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Index(NamedTuple):
    """The prefix index. parent, depth: int32 (nodes,); see `marconi_sim.trace.compiled.trace.Trace`."""

    parent: NDArray[np.int32]
    depth: NDArray[np.int32]


class Requests(NamedTuple):
    """The requests of a replay in processing order.

    input_node, end_node: int32 (requests,). Nodes of the index.
    time: float64 (requests,) arrival in seconds, if touches are timed in seconds; else empty, and a logical clock
        ticks at each look-up and at each insertion.
    """

    input_node: NDArray[np.int32]
    end_node: NDArray[np.int32]
    time: NDArray[np.float64]
