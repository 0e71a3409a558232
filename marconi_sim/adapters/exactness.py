"""What exact means for logits, and how to compute in float64 all through.

In float64, rounding leaves errors of 1e-14 to 1e-12 and wrong logic at least 1e-6, so a bound of 1e-9 tells them apart;
float32 does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

EXACT = 1e-9  # largest error of a logit in float64
NOTICED = 0.1  # smallest error of a logit that a wrong state must cause, with wide weights


@contextmanager
def strict_float64() -> Iterator[None]:
    """Make float32 mean float64 while the block runs.

    Models of transformers compute norms, softmax, rotations and recurrences in float32 whatever their dtype is, which
    hides errors up to 1e-4. Load the model before the block and run it in there: code that is first imported in the
    block would keep the wrong dtypes for good. The block changes torch itself, for all threads.
    """
    names = ("float32", "float")
    saved, cast = {name: getattr(torch, name) for name in names}, Tensor.float
    for name in names:
        setattr(torch, name, torch.float64)
    Tensor.float = Tensor.double
    try:
        yield
    finally:
        for name, dtype in saved.items():
            setattr(torch, name, dtype)
        Tensor.float = cast


def largest_error(logits: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference, in float64; infinite where one is not a number."""
    error = (logits.double() - expected.double()).abs().max().item()
    return error if error == error else float("inf")
