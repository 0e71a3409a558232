"""Who follows a replay request by request: a model that carries out what the cache decides, a plot, a test."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.requests import Index


class Listener(Protocol):
    """Is told what the cache did with each request, in processing order.

    Nodes are nodes of the index that `started` names. Requests are numbered in processing order.
    """

    def started(self, index: Index) -> None:
        """Take note of the index that nodes are numbered in, before the first request.

        Where states lie inside edges it is the cache's own and goes on growing: the nodes of the trace's index keep
        their numbers.
        """

    def looked_up(self, request: int, reused: int, checkpoints: tuple[int, ...]) -> None:
        """Take note of a look-up, which happens before the request is computed.

        Args:
            request: number of the request.
            reused: the node whose state is reused; the root (0): none.
            checkpoints: where on the request's path a state is wanted should the sequence be admitted, deepest last.
        """

    def inserted(self, request: int, events: NDArray[np.int32], bytes_held: int) -> None:
        """Take note of an insertion, with the evictions that it caused.

        Args:
            request: number of the request.
            events: int32 (events, 3): kind, node, other node, see `marconi_sim.core.radix.journal`. Only valid
                during the call.
            bytes_held: of the cache afterwards.
        """
