"""Everything a policy file needs: `from marconi_sim.policy import Entry, Parameter, RadixPolicy, kernel`."""

from marconi_sim.core.jit import kernel
from marconi_sim.core.radix.evict import Entry
from marconi_sim.policy.base import Policy
from marconi_sim.policy.block import BlockPolicy
from marconi_sim.policy.bound import BoundPolicy
from marconi_sim.policy.parameter import Parameter
from marconi_sim.policy.radix import RadixPolicy

__all__ = ["BlockPolicy", "BoundPolicy", "Entry", "Parameter", "Policy", "RadixPolicy", "kernel"]
