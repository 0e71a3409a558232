"""Marconi's admission without a limit: what eviction costs is the distance to this bound."""

from marconi_sim.policy import RadixPolicy


class Unbounded(RadixPolicy):
    """Checkpoints where marconi does and never evicts: the upper bound of every eviction rule."""

    unlimited = True
