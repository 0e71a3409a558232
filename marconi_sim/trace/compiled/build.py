"""From requests with tokens to a compiled trace, one batch of requests at a time.

Memory is that of the distinct symbols plus a batch: a reader streams requests in and their tokens are forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.core.index.build import NONE, GrowingTree, insert_sequences, preorder, rehash
from marconi_sim.trace.compiled.trace import Trace, session_order

_BATCH_SYMBOLS = 2**20
_NODES_PER_SEQUENCE = 4  # a split and a leaf, once for the input and once for the output


class Request(NamedTuple):
    """One call of a model, as a reader yields it.

    symbols: int32 or int64, non-negative. The tokens of the input followed by those of the output. For a trace of
        block hashes: one id per block, the last block of the input may be partly filled.
    input_tokens, output_tokens: lengths in tokens; the input has at least one.
    output_known: whether `symbols` covers the output. If not, the output is taken to be unlike any other sequence.
    arrival: seconds; NaN if the source does not tell.
    think_time: seconds from the previous answer of the session to this request; NaN if the source does not tell.
    words: words of the message that the user typed; -1 if there was none or it is not known.
    """

    session: str
    turn: int
    symbols: NDArray[np.int32] | NDArray[np.int64]
    input_tokens: int
    output_tokens: int
    output_known: bool = True
    arrival: float = math.nan
    think_time: float = math.nan
    words: int = -1


class TraceBuilder:
    """Compiles requests into a `Trace`.

    Args:
        block: tokens per symbol; 1 for token traces, the block size for traces of block hashes.
    """

    def __init__(self, block: int = 1) -> None:
        self._block = block
        self._tree = GrowingTree(
            parent=np.full(2**10, NONE, np.int32),
            depth=np.zeros(2**10, np.int32),
            start=np.full(2**10, NONE, np.int64),
            symbols=np.empty(2**16, np.int32),
            slots=np.full(2**11, NONE, np.int32),
            size=np.array([1, 0], np.int64),
        )
        self._batch: list[Request] = []
        self._batch_symbols = 0
        self._sessions: dict[str, int] = {}
        self._columns: list[tuple[Any, ...]] = []

    def add(self, request: Request) -> None:
        """Take one request. The order of calls is the order of the trace's requests."""
        self._batch.append(request)
        self._batch_symbols += request.symbols.size
        if self._batch_symbols >= _BATCH_SYMBOLS:
            self._flush()

    def _make_room(self, sequences: int, symbols: int, wide: bool) -> None:
        tree = self._tree
        nodes_needed = int(tree.size[0]) + _NODES_PER_SEQUENCE * sequences
        symbols_needed = int(tree.size[1]) + symbols
        if nodes_needed > tree.parent.size:
            grown = max(nodes_needed, 2 * tree.parent.size)
            arrays = {}
            for name in ("parent", "depth", "start"):
                old = getattr(tree, name)
                arrays[name] = np.full(grown, NONE, old.dtype)
                arrays[name][: old.size] = old
            tree = tree._replace(**arrays)
        dtype = np.int64 if wide else tree.symbols.dtype
        if symbols_needed > tree.symbols.size or dtype != tree.symbols.dtype:
            grown_symbols = np.empty(max(symbols_needed, 3 * tree.symbols.size // 2), dtype)
            grown_symbols[: tree.size[1]] = tree.symbols[: tree.size[1]]
            tree = tree._replace(symbols=grown_symbols)
        if 2 * nodes_needed > tree.slots.size:
            slots = 2 ** math.ceil(math.log2(2 * max(nodes_needed, tree.parent.size)))
            tree = tree._replace(slots=np.full(slots, NONE, np.int32))
            rehash(tree)
        self._tree = tree

    def _flush(self) -> None:
        batch = self._batch
        if not batch:
            return
        wide = self._tree.symbols.dtype == np.int64 or any(
            request.symbols.dtype == np.int64
            and request.symbols.size > 0
            and int(request.symbols.max()) > np.iinfo(np.int32).max
            for request in batch
        )
        self._make_room(len(batch), self._batch_symbols, wide)
        symbols: NDArray[Any] = np.concatenate([r.symbols for r in batch]).astype(
            self._tree.symbols.dtype, copy=False
        )
        sizes = np.array([r.symbols.size for r in batch], np.int64)
        input_node = np.empty(len(batch), np.int32)
        end_node = np.empty(len(batch), np.int32)
        insert_sequences(
            self._tree,
            symbols,
            np.cumsum(sizes) - sizes,
            np.array([r.input_tokens for r in batch], np.int64),
            np.array([r.output_tokens for r in batch], np.int64),
            np.array([r.output_known for r in batch], np.bool_),
            self._block,
            input_node,
            end_node,
        )
        codes = [self._sessions.setdefault(r.session, len(self._sessions)) for r in batch]
        self._columns.append(
            (
                np.array(codes, np.int32),
                np.array([r.turn for r in batch], np.int32),
                input_node,
                end_node,
                np.array([r.arrival for r in batch], np.float64),
                np.array([r.think_time for r in batch], np.float64),
                np.array([r.words for r in batch], np.int32),
            )
        )
        self._batch = []
        self._batch_symbols = 0

    def finish(self, provenance: Mapping[str, Any]) -> Trace:
        """Return the compiled trace. The builder must have been given at least one request."""
        self._flush()
        nodes = int(self._tree.size[0])
        rank = np.empty(nodes, np.int32)
        links = (np.full(nodes, NONE, np.int32), np.full(nodes, NONE, np.int32))
        preorder(self._tree.parent[:nodes], *links, rank)
        parent = np.empty(nodes, np.int32)
        depth = np.empty(nodes, np.int32)
        parent[rank] = np.where(
            self._tree.parent[:nodes] == NONE, NONE, rank[self._tree.parent[:nodes]]
        )
        depth[rank] = self._tree.depth[:nodes]
        session, turn, input_node, end_node, arrival, think_time, words = (
            np.concatenate(column) for column in zip(*self._columns, strict=True)
        )
        names = list(self._sessions)
        order = session_order(names)
        session_rank = np.empty(len(names), np.int32)
        session_rank[order] = np.arange(len(names), dtype=np.int32)
        return Trace(
            parent=parent,
            depth=depth,
            session=session_rank[session],
            session_names=tuple(names[i] for i in order),
            turn=turn,
            input_node=rank[input_node],
            end_node=rank[end_node],
            arrival=arrival,
            think_time=think_time,
            words=words,
            provenance=dict(provenance),
        )


def build(requests: Iterable[Request], provenance: Mapping[str, Any], block: int = 1) -> Trace:
    """Compile a stream of requests; see `TraceBuilder`."""
    builder = TraceBuilder(block)
    for request in requests:
        builder.add(request)
    return builder.finish(provenance)
