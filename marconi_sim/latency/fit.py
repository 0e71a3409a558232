"""Time to first token as a function of what is left to compute and what is restored, fitted to measurements."""

from __future__ import annotations

from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class PrefillTime(NamedTuple):
    """Seconds of a prefill: overhead + FLOPs left / rate + bytes of the restored prefix / rate.

    overhead: seconds.
    per_flop: seconds per floating-point operation.
    per_restored_byte: seconds per byte of KV and state.
    """

    overhead: float
    per_flop: float
    per_restored_byte: float

    def seconds_of(self, flops: Numbers, restored_bytes: Numbers) -> Numbers:
        """Return the predicted seconds, float64 (requests,)."""
        seconds: Numbers = (
            self.overhead + self.per_flop * flops + self.per_restored_byte * restored_bytes
        )
        return seconds


def fit_prefill_time(flops: Numbers, restored_bytes: Numbers, seconds: Numbers) -> PrefillTime:
    """Fit by least squares of the relative errors, so that short prompts count like long ones; no term is negative.

    Args:
        flops: float64 (requests,). Left to compute.
        restored_bytes: float64 (requests,). Copied from the cache.
        seconds: float64 (requests,). Measured, above 0.

    Raises:
        ValueError: fewer than four requests, or a time that is not above 0.
    """
    if seconds.size < 4 or not (seconds > 0).all():
        raise ValueError(f"{seconds.size} times, expected at least 4, all above 0")
    terms = np.stack([np.ones_like(seconds), flops, restored_bytes], axis=1) / seconds[:, None]
    scale = np.abs(terms).max(axis=0)
    scale[scale == 0] = 1.0
    best, least = np.zeros(3), np.inf
    # Three terms: trying every set of them is the whole of non-negative least squares.
    for chosen in chain.from_iterable(combinations(range(3), count) for count in (1, 2, 3)):
        columns = list(chosen)
        found = np.linalg.lstsq(terms[:, columns] / scale[columns], np.ones_like(seconds))[0]
        error = float(((terms[:, columns] / scale[columns] @ found - 1) ** 2).sum())
        if (found >= 0).all() and error < least:
            best, least = np.zeros(3), error
            best[columns] = found / scale[columns]
    return PrefillTime(*best.tolist())


def relative_errors(predicted: Numbers, measured: Numbers) -> Numbers:
    """Return |predicted - measured| / measured, float64 (requests,)."""
    errors: Numbers = np.abs(predicted - measured) / measured
    return errors
