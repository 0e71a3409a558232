"""What a request did to a radix-tree cache, one event after the other (DESIGN section 6b).

Whoever holds what the cache only counts, tensors for one, does as the events say and never decides anything itself.
A cache keeps a journal for those who drive it one request at a time; a replay in one loop keeps none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE
from marconi_sim.core.jit import inner

# Kinds of events. Nodes are nodes of the index that are, or were, cache nodes; an edge is the KV of the tokens
# [depth of the cache node above, depth of the node).
LEAF = 0  # `node` is new below `other`, with the KV of its edge
SPLIT = 1  # `node` is new inside the edge of `other`, which keeps the part below it
MERGE = 2  # `node` is no cache node any more: the KV of its edge goes before that of `other`'s edge
CHECKPOINT = 3  # `node` now holds a recurrent state
DROP_STATE = 4  # it holds none any more
DROP_LEAF = 5  # `node` is gone, and the KV of its edge
KINDS = ("leaf", "split", "merge", "checkpoint", "drop state", "drop leaf")


class Journal(NamedTuple):
    """The events of one request.

    events: int32 (room for events, 3). Kind, node, other node (NONE where there is none). No room: no journal is kept.
    used: int64 (1,). How many there are.
    """

    events: NDArray[np.int32]
    used: NDArray[np.int64]


def new_journal(entries: int, planned: int = 0) -> Journal:
    """Return a journal for a cache of at most `entries` cache nodes; 0: none is kept.

    `planned` is how many checkpoints a request can have beside those at the branch point, the input's end and the
    sequence's end.
    """
    # An insertion is a leaf, three splits, three checkpoints and a merge at most, and a split and a checkpoint for each
    # planned position. Every cache node can be dropped or merged once in one request, after its state.
    room = 2 * (entries + planned) + 16 if entries else 0
    return Journal(np.empty((room, 3), np.int32), np.zeros(1, np.int64))


@inner
def note(journal: Journal, kind: int, node: int, other: int = NONE) -> None:
    """Write an event down, if a journal is kept."""
    if journal.events.shape[0] == 0:
        return
    i = journal.used[0]
    journal.events[i, 0] = kind
    journal.events[i, 1] = node
    journal.events[i, 2] = other
    journal.used[0] = i + 1
