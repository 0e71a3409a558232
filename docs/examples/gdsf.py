"""GreedyDual-Size-Frequency over FLOPs: what is used often, costs much and holds little stays."""

from typing import Any

from marconi_sim.policy import Entry, Parameter, RadixPolicy, kernel


class GDSF(RadixPolicy):
    """Evicts the lowest floor + (hits + 1) * FLOPs / bytes; the floor rises with every victim, so that entries age."""

    normalised = False  # the score is the value itself, not its place among the others

    frequency = Parameter(1.0, "how much a hit counts against none", unit="times", low=0.0)

    @staticmethod
    @kernel
    def value(entry: Entry, params: Any) -> float:
        """The entry's worth at its last touch, in FLOPs saved per byte held."""
        uses = 1 + params.frequency * entry.hits
        return entry.floor + uses * entry.flops / (entry.kv_bytes + entry.state_bytes)

    @staticmethod
    @kernel
    def score(recency: float, value: float, params: Any) -> float:
        """Only the worth decides."""
        return value
