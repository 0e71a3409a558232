"""Time to first token as a function of what is left to compute and what is restored, fitted to measurements."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class PrefillTime(NamedTuple):
    """Seconds of a prefill: overhead + FLOPs left / rate + bytes of the restored prefix / rate.

    overhead: seconds.
    per_flop: seconds per floating-point operation.
    per_restored_byte: seconds per byte of KV.
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


def fit_prefill_time(
    flops: Numbers, restored_bytes: Numbers, restore_seconds: Numbers, seconds: Numbers
) -> PrefillTime:
    """Fit overhead and rate by least squares of the relative errors, so that short prompts count like long ones.

    The restored prefix has a rate of its own, from its own times: what is restored and what is left to compute go
    together too closely to be told apart in the sum. No term is negative.

    Args:
        flops: float64 (requests,). Left to compute.
        restored_bytes: float64 (requests,). Copied from the cache.
        restore_seconds: float64 (requests,). What that took.
        seconds: float64 (requests,). Measured, above 0, `restore_seconds` included.

    Raises:
        ValueError: fewer than four requests, or a time that is not above 0.
    """
    if seconds.size < 4 or not (seconds > 0).all():
        raise ValueError(f"{seconds.size} times, expected at least 4, all above 0")
    restoring = restored_bytes > 0
    copied = float(restored_bytes[restoring].sum())
    per_byte = float(restore_seconds[restoring].sum()) / copied if copied else 0.0
    rest = (seconds - per_byte * restored_bytes) / seconds
    terms = np.stack([np.ones_like(seconds), flops], axis=1) / seconds[:, None]
    scale = terms.max(axis=0)
    scale[scale == 0] = 1.0
    best, least = np.zeros(2), np.inf
    # Two terms: trying every set of them is the whole of non-negative least squares.
    for columns in ([0], [1], [0, 1]):
        scaled = terms[:, columns] / scale[columns]
        found = np.linalg.lstsq(scaled, rest)[0]
        error = float(((scaled @ found - rest) ** 2).sum())
        if (found >= 0).all() and error < least:
            best, least = np.zeros(2), error
            best[columns] = found / scale[columns]
    overhead, per_flop = best.tolist()
    return PrefillTime(overhead, per_flop, per_byte)


def relative_errors(predicted: Numbers, measured: Numbers) -> Numbers:
    """Return |predicted - measured| / measured, float64 (requests,)."""
    errors: Numbers = np.abs(predicted - measured) / measured
    return errors
