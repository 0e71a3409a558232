"""Every jitted function of the simulator. Imports numpy, numba and itself, nothing else."""
