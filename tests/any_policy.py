"""A radix-tree policy whose rules and arithmetic are chosen at run time, so that it compiles once for all variants."""

from __future__ import annotations

from typing import Any

import strategies

from marconi_sim.policy import Entry, Parameter, RadixPolicy, kernel

VALUES = tuple(strategies.VALUES)
SCORES = tuple(strategies.SCORES)


class AnyPolicy(RadixPolicy):
    """Computes the value and the score that its parameters number, in the order of `strategies`."""

    alpha = Parameter(0.0, "weight of the value in marconi's score", low=0.0)
    value_kind = Parameter(0, "position in VALUES, -1: none", low=-1, integer=True)
    score_kind = Parameter(0, "position in SCORES", low=0, integer=True)
    interval = Parameter(1, "tokens between checkpoints", low=1, integer=True)
    chunk = Parameter(1, "tokens of a chunk", low=1, integer=True)
    grid = Parameter(1, "tokens that positions are rounded to", low=1, integer=True)

    @staticmethod
    @kernel
    def value(entry: Entry, params: Any) -> float:
        size = entry.kv_bytes + entry.state_bytes
        if params.value_kind == 0:  # marconi's own
            return entry.flops / size if size else 0.0
        if params.value_kind == 1:  # gdsf
            return entry.floor + entry.hits * entry.flops / size if size else entry.floor
        if params.value_kind == 2:  # depth
            return float(entry.depth)
        if params.value_kind == 3:  # smallest first
            return float(size)
        return 0.0

    @staticmethod
    @kernel
    def score(recency: float, value: float, params: Any) -> float:
        if params.score_kind == 0:
            return recency + params.alpha * value
        if params.score_kind == 1:  # value
            return value
        return 0.25 * recency + 3.0 * value - 1.0


def policy_for(variant: dict[str, Any], clock: str) -> AnyPolicy:
    """Return the policy that the reference's `RadixCache(**variant)` is."""
    rules = {key: variant[key] for key in ("admits", "evicts", "touches", "normalised")}
    value = next(name for name, hook in strategies.VALUES.items() if hook is variant["value"])
    score = next(name for name, hook in strategies.SCORES.items() if hook is variant["score"])
    no_value = variant["policy"] == "sglang+" and variant["value"] is None
    return type("Variant", (AnyPolicy,), rules)(
        clock=clock,
        alpha=variant["alpha"],
        value_kind=-1 if no_value else VALUES.index(value),
        score_kind=SCORES.index(score),
        **{name: variant[name] for name in ("interval", "chunk", "grid") if name in variant},
    )
