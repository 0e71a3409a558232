"""No cache at all: the lower bound."""

from marconi_sim.policy import BoundPolicy


class Vanilla(BoundPolicy):
    """Computes every token of every input: the lower bound."""
