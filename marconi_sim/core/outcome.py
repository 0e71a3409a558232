"""What a replay tells of every request, whatever the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Why a token of an input had to be computed (DESIGN section 6), in order of the columns of `Outcome.missed`.
CAUSES = (
    "cold",
    "kv_evicted",
    "unfinished",
    "state_evicted",
    "no_checkpoint",
    "grid",
    "last_token",
    "not_admitted",
)
COLD, KV_EVICTED, UNFINISHED, STATE_EVICTED, NO_CHECKPOINT, GRID, LAST_TOKEN, NOT_ADMITTED = range(
    8
)

# Positions in `Outcome.totals`.
EVICTIONS, BYPASSED, STATES, KV_TOKENS, PEAK_BYTES = range(5)


class Outcome(NamedTuple):
    """Written by a replay, one row per request in processing order.

    matched: int32 (requests,). Tokens of the input that were resident as KV.
    reused: int32 (requests,). Tokens of the input that did not have to be computed.
    missed: int32 (requests, causes). The other tokens of the input by cause; a row adds up to input - reused.
    totals: int64 (5,). Evictions, bypassed sequences, states and KV tokens held now, the most bytes ever held.
    """

    matched: NDArray[np.int32]
    reused: NDArray[np.int32]
    missed: NDArray[np.int32]
    totals: NDArray[np.int64]


def new_outcome(requests: int) -> Outcome:
    """Return an outcome for `requests` requests, all zero."""
    return Outcome(
        matched=np.zeros(requests, np.int32),
        reused=np.zeros(requests, np.int32),
        missed=np.zeros((requests, len(CAUSES)), np.int32),
        totals=np.zeros(5, np.int64),
    )
