"""Greedy dual size frequency (GDSF), a rule of web caches, with FLOPs as the cost of a miss."""

from typing import Any

from marconi_sim.policy import Entry, Parameter, RadixPolicy, kernel


class GDSF(RadixPolicy):
    """Evicts the entry that saves the fewest FLOPs per byte times its uses; unused ones age."""

    normalised = False

    weight = Parameter(1.0, "of a reuse, the first use counting 1", low=0.0)

    @staticmethod
    @kernel
    def value(entry: Entry, params: Any) -> float:
        """FLOPs per byte, times uses, above what the last victim was worth."""
        uses = 1.0 + params.weight * entry.hits
        return entry.floor + uses * entry.flops / (entry.kv_bytes + entry.state_bytes)

    @staticmethod
    @kernel
    def score(recency: float, value: float, params: Any) -> float:
        """The value alone: recency is in it, as the floor of the last touch."""
        return value
