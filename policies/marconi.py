"""Marconi (arXiv 2411.19379): judicious admission and FLOP-aware eviction."""

from typing import Any

from marconi_sim.policy import Entry, Parameter, RadixPolicy, kernel


class Marconi(RadixPolicy):
    """Checkpoints at branch points and sequence ends; evicts the lowest recency + alpha * FLOPs saved per byte.

    Paper sections 4.1 to 4.3 as read in DESIGN section 5: recency and efficiency are min-max normalised over the nodes
    with at most one child; only the node whose state is reused is refreshed.
    """

    published = True
    alpha = Parameter(
        "bootstrap", "weight of FLOP efficiency against recency; bootstrap: chosen on the start of the trace",
        low=0.0, words=("bootstrap",),
    )  # fmt: skip
    multiplier = Parameter(
        5, "bootstrap: requests to see before choosing, as a multiple of those before the first eviction",
        unit="times", low=1, integer=True,
    )  # fmt: skip
    bootstrap_grid = {"alpha": tuple(i / 10 for i in range(21))}  # noqa: RUF012 (never changed)

    @staticmethod
    @kernel
    def value(entry: Entry, params: Any) -> float:
        """FLOPs that reusing the node saves beyond its parent, per byte that evicting it would free."""
        return entry.flops / (entry.kv_bytes + entry.state_bytes)

    @staticmethod
    @kernel
    def score(recency: float, value: float, params: Any) -> float:
        """The paper's S(n): the lowest goes first."""
        return recency + params.alpha * value
