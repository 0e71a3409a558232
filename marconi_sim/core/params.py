"""A policy's parameters as a tuple type that numba's compile cache can find again in another process.

Numba pickles the type of every argument by name. A class made on the fly has no such name, so the classes live here as
attributes that are made when they are asked for: `params.Params__alpha` is a named tuple with one field.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

_PREFIX = "Params__"


@functools.cache
def _params_type(name: str) -> type[tuple[float, ...]]:
    made = namedtuple(name, name.removeprefix(_PREFIX).split("__"))  # type: ignore[misc]
    made.__module__ = __name__
    return made


def __getattr__(name: str) -> Any:
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _params_type(name)


def make_params(values: dict[str, float]) -> Any:
    """Return the named tuple of a policy's numbers, all float64. One without parameters gets a field `none`."""
    values = values or {"none": 0.0}
    return _params_type(_PREFIX + "__".join(values))(*(float(value) for value in values.values()))
