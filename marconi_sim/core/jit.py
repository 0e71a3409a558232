"""`@kernel`: numba's njit with a compile cache on disk that every process shares and that is never stale.

Plain `cache=True` fails a plug-in simulator in three ways. It does not notice an edit to a callee in another file; it
compiles a kernel that takes a jitted function as argument again in every process, because the function's identity is a
random number; and it serves code compiled without bounds checks to a run that asked for them. So a kernel's cache entry
is stamped with the identity of what the kernel is made of (`core/identity.py`) and the bounds-check flag, a jitted
function's identity is its name and that of what it is made of, and a tuple type's is its fields.

The private names of numba that this needs are confined to this file; `tests/test_jit.py` pins the behaviour in fresh
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import caching, sigutils
from numba.core.types.containers import BaseNamedTuple, BaseTuple
from numba.core.types.functions import Dispatcher

from marconi_sim.core.identity import identity

P = ParamSpec("P")
R = TypeVar("R")


class _Unstamped:
    """A cache locator without a stamp of its own: what is stamped is known when the kernel is first called."""

    def get_source_stamp(self) -> None:
        return None


class _KernelCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [  # noqa: RUF012 (numba's own attribute)
        type(locator.__name__, (_Unstamped, locator), {})
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


def _inside(argument_types: Iterable[Any]) -> Iterator[Any]:
    """Yield the types of arguments, and those of the fields of tuples."""
    for one in argument_types:
        yield one
        if isinstance(one, BaseTuple):
            yield from _inside(one)


_named: set[Any] = set()


def _name(dispatcher: Any) -> bool:
    """Give a function that is passed to kernels an identity that other processes find; return whether it has one."""
    made_of = identity(dispatcher)
    if made_of is None:
        return False
    if dispatcher not in _named:
        if vars(dispatcher).get("_MemoMixin__uuid") is not None:
            return False  # it was pickled before, under a random number
        _named.add(dispatcher)
        function = dispatcher.py_func
        dispatcher._set_uuid(
            f"{Path(function.__code__.co_filename).name}:{function.__qualname__}:{made_of}"
        )
    return True


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    def __init__(self, dispatcher: Any) -> None:
        super().__init__(dispatcher.py_func)
        self._dispatcher = dispatcher

    def _open(self, sig: Any) -> bool:
        """Stamp the cache with what the kernel is made of now; return whether all that would run is known."""
        made_of = identity(self._dispatcher)
        passed = [
            one.dispatcher
            for one in _inside(sigutils.normalize_signature(sig)[0])
            if isinstance(one, Dispatcher)
        ]
        if made_of is None or not all(map(_name, passed)):
            return False
        self._cache_file = _IndexFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(made_of, numba.config.BOUNDSCHECK or 0),
        )
        return True

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if self._open(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        # Looked at again: what has changed since it was loaded, or while it was compiled, is not kept.
        if self._open(sig):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # A named tuple is found by its class's name, and a kernel reads its fields by position.
        arguments = sigutils.normalize_signature(sig)[0]
        fields = tuple(one.fields for one in _inside(arguments) if isinstance(one, BaseNamedTuple))
        return (*super()._index_key(sig, codegen), fields)


def _compile(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    # Without the runtime for allocations a call does not count references to every array of its arguments, which made
    # kernels that pass tuples of arrays around 8 times slower. A kernel therefore allocates nothing.
    dispatcher = numba.njit(function, nogil=True, _nrt=False, **options)
    if not numba.config.DISABLE_JIT:
        try:
            dispatcher._cache = _KernelCache(dispatcher)
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
