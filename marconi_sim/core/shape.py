"""What a model costs: bytes of a token's KV, bytes of a recurrent state, FLOPs of a prefill."""

from __future__ import annotations

from typing import NamedTuple

from marconi_sim.core.jit import inner


class Shape(NamedTuple):
    """The costs of a model that a cache policy can see.

    kv_bytes: int. Bytes of KV of one token, all attention layers.
    state_bytes: int. Bytes of one checkpoint: the states of all recurrent layers, convolution included.
    flops_linear, flops_quadratic: float. A prefill of L tokens from nothing takes
        flops_linear * L + flops_quadratic * L^2 floating-point operations.
    """

    kv_bytes: int
    state_bytes: int
    flops_linear: float
    flops_quadratic: float


@inner
def prefill_flops(shape: Shape, tokens: float) -> float:
    """Return the FLOPs of prefilling `tokens` tokens from nothing."""
    # Factored: one rounding at most while the bracket is below 2^53, and monotone in any case.
    return tokens * (shape.flops_linear + shape.flops_quadratic * tokens)
