"""Adding up gaps to times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.jit import kernel


@kernel
def add_up(
    steps: NDArray[np.float64], restart: NDArray[np.bool_], times: NDArray[np.float64]
) -> None:
    """Write running sums: times[i] = steps[i] where restart[i], else times[i - 1] + steps[i].

    One addition after the other, so that no run's rounding depends on the runs before it. All
    arrays are (n,); the first element must restart.
    """
    time = 0.0
    for i in range(steps.size):
        time = steps[i] if restart[i] else time + steps[i]
        times[i] = time
