"""`@kernel`: numba's njit with a compile cache on disk that every process shares and that is never stale.

Plain `cache=True` fails a plug-in simulator in three ways. It does not notice an edit to a callee in another file; it
compiles a kernel that takes a jitted function as argument again in every process, because the function's identity is a
random number; and it serves code compiled without bounds checks to a run that asked for them. So a kernel's cache entry
is stamped with the source of all of `core/`, of the kernel's own file and of the bounds-check flag, and a jitted
function's identity is its file's name and content.

A kernel may therefore read globals from `core/` and from its own file only. The private names of numba that this needs
are confined to this file; `tests/test_jit.py` pins the behaviour in fresh processes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import caching

P = ParamSpec("P")
R = TypeVar("R")
_CORE = Path(__file__).parent


@functools.cache
def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def _core_digest() -> str:
    digests = [_file_digest(str(path)) for path in sorted(_CORE.rglob("*.py"))]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


class _Stamped:
    """Replaces the stamp of a cache locator, which otherwise covers the kernel's own file only."""

    _py_file: str

    def get_source_stamp(self) -> tuple[str, str, int]:
        return _core_digest(), _file_digest(self._py_file), numba.config.BOUNDSCHECK or 0


class _KernelCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [  # noqa: RUF012 (numba's own attribute)
        type(locator.__name__, (_Stamped, locator), {})
        for locator in (
            caching.UserProvidedCacheLocator,
            caching.InTreeCacheLocator,
            caching.UserWideCacheLocator,
        )
    ]


class _IndexFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The list of what a kernel's cache holds; one that names a type that has moved since is worth nothing."""

    def _load_index(self) -> dict[Any, str]:
        try:
            return cast("dict[Any, str]", super()._load_index())
        except (
            AttributeError,
            ImportError,
        ):  # numba reads the types by name, and the stamp after them
            return {}


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _IndexFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )


def _compile(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    # Without the runtime for allocations a call does not count references to every array of its arguments, which made
    # kernels that pass tuples of arrays around 8 times slower. A kernel therefore allocates nothing.
    dispatcher = numba.njit(function, nogil=True, _nrt=False, **options)
    if not numba.config.DISABLE_JIT:
        file = function.__code__.co_filename
        identity = (
            f"{Path(file).name}:{function.__qualname__}:{_core_digest()}:{_file_digest(file)}"
        )
        dispatcher._set_uuid(identity)
        try:
            dispatcher._cache = _KernelCache(function)
        except RuntimeError:
            # Neither the source's folder nor the user's may be written: every process compiles anew.
            return cast("Callable[P, R]", dispatcher)
    return cast("Callable[P, R]", dispatcher)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` with numba (nopython mode, no fastmath, the GIL released) and cache it on disk.

    With NUMBA_DISABLE_JIT=1 the function is returned as it is: the reference mode of the test suite.
    """
    return _compile(function)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Like `kernel`, for a function that only kernels call: inlined into its callers.

    It has no entry point for Python, which takes longer to compile than a small function itself when the arguments are
    tuples of many arrays. Passing such tuples costs more than most functions do: inlining made replays 2 to 4 times
    faster.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
