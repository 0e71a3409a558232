"""marconi-sim: a simulator of prefix caching for hybrid (attention + recurrent) language models.

import marconi_sim as ms

trace = ms.load_trace("swebench", sessions=100)
result = ms.simulate(trace, policy="marconi", capacity="40GB", params={"alpha": 0.5})
result.summary["token_hit_rate"]
result.requests  # a pandas data frame, one row per request
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from marconi_sim.base.version import __version__

if TYPE_CHECKING:
    from marconi_sim.base.errors import UsageError, UserError
    from marconi_sim.model import Model, load_model, read_config, vary
    from marconi_sim.policy.load import load_policy
    from marconi_sim.simulation.result import Result
    from marconi_sim.simulation.simulate import simulate
    from marconi_sim.sweeps.sweep import sweep
    from marconi_sim.trace.load import Workload, load_trace

# Name -> module. Loaded when first asked for: `marconi-sim --help` must not wait for numba.
_PUBLIC = {
    "Model": "marconi_sim.model",
    "Result": "marconi_sim.simulation.result",
    "UsageError": "marconi_sim.base.errors",
    "UserError": "marconi_sim.base.errors",
    "Workload": "marconi_sim.trace.load",
    "load_model": "marconi_sim.model",
    "load_policy": "marconi_sim.policy.load",
    "load_trace": "marconi_sim.trace.load",
    "read_config": "marconi_sim.model",
    "simulate": "marconi_sim.simulation.simulate",
    "sweep": "marconi_sim.sweeps.sweep",
    "vary": "marconi_sim.model",
}

__all__ = [
    "Model",
    "Result",
    "UsageError",
    "UserError",
    "Workload",
    "__version__",
    "load_model",
    "load_policy",
    "load_trace",
    "read_config",
    "simulate",
    "sweep",
    "vary",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
