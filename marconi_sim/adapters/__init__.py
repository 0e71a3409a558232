"""Real models behind the simulator's decisions. Everything in here needs the extra `torch`; nothing outside imports it.

A backend prefills tokens from a restored prefix (`adapters/backend.py`): an own hybrid model in plain torch
(`adapters/hybrid_model.py`), or a model of the transformers library (`adapters/transformers_model.py`).
"""

from __future__ import annotations

import importlib
from types import ModuleType

from marconi_sim.base.errors import UserError


def require(package: str) -> ModuleType:
    """Import a package that the extra `torch` installs.

    Args:
        package: `torch` or `transformers`.

    Raises:
        UserError: it is not installed, or cannot be imported; the message names the extra.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"running a real model needs {package}, which cannot be imported ({error});"
            " install it with: pip install 'marconi-sim[torch]'"
        ) from error


# Before any module of this package gets to its own `import torch`.
require("torch")
