"""What a function that numba compiles is made of: the code and the values that this process has really loaded.

Its source would not do: the file may have been edited since it was loaded, and numba bakes in the values of globals,
wherever they come from. So the identity is read from the loaded objects: bytecode, constants, names, defaults, cells of
closures, the globals that its names find, and all of that again for every function among them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# What these define is told by its name: their versions decide about the rest of a compile cache anyway.
_FOREIGN = sys.stdlib_module_names | {"numpy", "numba"}
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), range})


class _UnknownError(Exception):
    """A value of which nobody can say what numba would make of it."""


def _names(code: CodeType) -> set[str]:
    """Return every name of a global or an attribute in a function and in the functions inside it."""
    inside = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*inside)


def _is_foreign(value: Any) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return (module or type(value).__module__).partition(".")[0] in _FOREIGN


class _Content:
    """One function as text, and the functions that it may call."""

    def __init__(self, function: Any) -> None:
        self.callees: list[Any] = []
        python: FunctionType = getattr(function, "py_func", function)
        self._names = sorted(_names(python.__code__))
        self._open: set[int] = set()  # modules and classes: they may hold each other
        cells = [cell.cell_contents for cell in python.__closure__ or ()]
        parts = [
            python.__code__,
            getattr(function, "targetoptions", None),
            python.__defaults__,
            python.__kwdefaults__,
            cells,
            self._found_in(python.__globals__),
        ]
        self.text = self._list(parts)

    def _found_in(self, space: Any) -> dict[str, Any]:
        # Which of a function's names are globals and which are attributes of what is not told apart: too much is
        # harmless, too little would be a stale result.
        return {name: space[name] for name in self._names if name in space}

    def _list(self, values: Iterable[Any]) -> str:
        return f"({', '.join(map(self._tell, values))})"

    def _tell(self, value: Any) -> str:
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        if isinstance(value, CodeType):
            return self._tell_code(value)
        if isinstance(value, Enum):
            return f"{self._tell(kind)} {value.name} {self._tell(value.value)}"
        if isinstance(value, tuple | list):
            return f"{self._tell(kind)} {self._list(value)}"
        if isinstance(value, set | frozenset):
            return f"{kind.__name__} {sorted(map(self._tell, value))}"
        if isinstance(value, dict):
            return f"{kind.__name__} {self._list(value.items())}"
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            digest = hashlib.sha256(np.asarray(value).tobytes()).hexdigest()
            order = value.flags.c_contiguous, value.flags.f_contiguous
            return f"{kind.__name__} {value.dtype.descr} {value.shape} {order} {digest}"
        if isinstance(value, np.dtype):
            return f"dtype {value.descr}"
        if hasattr(value, "py_func") or (kind is FunctionType and not _is_foreign(value)):
            self.callees.append(value)
            return "function"
        if isinstance(value, type | ModuleType):
            return self._tell_space(value)
        if _is_foreign(value) and hasattr(value, "__name__"):
            return f"{value.__module__} {getattr(value, '__qualname__', value.__name__)}"
        if kind.__module__.startswith("numba.core.types"):
            return repr(value)
        raise _UnknownError(f"{value!r}")

    def _tell_code(self, code: CodeType) -> str:
        return self._list(
            [
                code.co_code,
                code.co_consts,
                code.co_names,
                code.co_varnames,
                code.co_cellvars,
                code.co_freevars,
                (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
                code.co_exceptiontable,
            ]
        )

    def _tell_space(self, space: type | ModuleType) -> str:
        is_module = isinstance(space, ModuleType)
        name = space.__name__ if is_module else f"{space.__module__} {space.__qualname__}"
        if _is_foreign(space) or id(space) in self._open:
            return name
        if isinstance(space, type) and hasattr(space, "_fields"):
            return f"{name} {self._list((space._fields, space._field_defaults))}"  # type: ignore[attr-defined]
        self._open.add(id(space))
        if isinstance(space, type) and issubclass(space, Enum):
            members = {one.name: one.value for one in space}
            return f"{name} {self._list(members.items())}"
        return f"{name} {self._list(self._found_in(vars(space)).items())}"


_first_seen: dict[Any, tuple[str, list[Any]]] = {}


def identity(function: Callable[..., Any]) -> str | None:
    """Return the identity of a function (jitted or plain) as it would be compiled now.

    None if nobody can tell: it uses a value of an unknown kind, or a global has got another value since a function was
    first looked at, which may be compiled already, with the old one.
    """
    digest = hashlib.sha256()
    reached: dict[Any, int] = {function: 0}
    waiting = [function]
    for one in waiting:  # grows on the way
        try:
            content = _Content(one)
        except (_UnknownError, ValueError):  # ValueError: a cell that is still empty
            return None
        found = content.text, content.callees
        if _first_seen.setdefault(one, found) != found:
            return None
        for callee in content.callees:
            if callee not in reached:
                reached[callee] = len(reached)
                waiting.append(callee)
        digest.update(repr((content.text, [reached[each] for each in content.callees])).encode())
    return digest.hexdigest()
