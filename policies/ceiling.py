"""Reuse of everything: the upper bound."""

from marconi_sim.policy import BoundPolicy


class Ceiling(BoundPolicy):
    """Reuses every token that any earlier sequence has shown, at any position: the upper bound of all policies."""

    reuses_everything = True
