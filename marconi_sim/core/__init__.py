"""Every jitted function of the simulator. Imports numpy, numba and itself, nothing else."""

from marconi_sim.core import bytecode

bytecode.trust_content_only(__name__)
