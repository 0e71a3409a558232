"""The content of a radix-tree cache as tensors: a listener that does on a real model what the simulator decides.

The simulator decides which prefix is reused, where states are checkpointed and what is evicted. This adapter restores,
computes, keeps, splits, joins and drops tensors as it is told, and knows no policy and no tree: KV by the cache node at
the end of its edge, states by cache node. After every request its bytes must equal the simulator's.

An input that is cached to its very end needs no prefill, but its first output token needs the logits of its last
position. They are kept with each state and are not counted: engines recompute the last token instead, which a state at
the end does not allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from marconi_sim.adapters.backend import KV, Backend, State, join_kv, nbytes, slice_kv
from marconi_sim.adapters.exactness import largest_error
from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.radix import journal as kinds
from marconi_sim.trace.export.drawn_tokens import Tokens


class Edge(NamedTuple):
    """KV of the tokens [start, depth of the cache node that it belongs to)."""

    start: int
    kv: KV


class Checkpoint(NamedTuple):
    """What is kept at a position: the recurrent state, and the logits there, (vocabulary,)."""

    state: State
    logits: torch.Tensor


class Measured(NamedTuple):
    """One request on the model.

    request: number in processing order.
    start, end: of the input's tokens [0, end), [0, start) were reused and [start, end) computed.
    restored_bytes: KV that was copied from the cache.
    restore_seconds: that this took, wall clock; part of `seconds`.
    seconds, cpu_seconds: from the look-up to the first output token: restoring, prefill, choice of the token. Wall
        clock, and processor time of this process (all threads).
    logit_error: largest difference of the logits of the input's last position to those of a prefill from nothing, NaN
        where it was not compared, infinite where one of them is not a number.
    logit_spread: standard deviation of the logits of the prefill from nothing, NaN where it was not compared.
    held_bytes: by the adapter after the request, KV and states.
    """

    request: int
    start: int
    end: int
    restored_bytes: int
    restore_seconds: float
    seconds: float
    cpu_seconds: float
    logit_error: float
    logit_spread: float
    held_bytes: int


class _Computed(NamedTuple):
    """What a request computed: KV of the tokens from `start` on, and checkpoints by position."""

    start: int
    kv: KV
    checkpoints: dict[int, Checkpoint]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class TorchCache:
    """Holds KV and states for a replay, as `marconi_sim.policy.listener.Listener`.

    Attributes:
        measured: one entry per request so far.
        event_counts: int64 (kinds of events,). How often each kind of event was carried out.
        branch_checkpoints: how many states were kept at a position inside an input.
    """

    def __init__(
        self,
        backend: Backend,
        index: Index,
        requests: Requests,
        tokens: Tokens,
        *,
        compare: Collection[int] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Start with an empty cache.

        Args:
            backend: the model.
            index: the prefix index.
            requests: in processing order.
            tokens: of the sequences.
            compare: requests whose logits are compared with a prefill from nothing.
            advance: called with 1 after each request.
        """
        self._backend = backend
        self._index = index
        self._requests = requests
        self._tokens = tokens
        self._compare = frozenset(compare)
        self._advance = advance
        self._edges: dict[int, Edge] = {}
        self._checkpoints: dict[int, Checkpoint] = {}
        self._held = 0
        self._computed = _Computed(0, (), {})
        self.measured: list[Measured] = []
        self.event_counts = np.zeros(len(kinds.KINDS), np.int64)
        self.branch_checkpoints = 0

    def _depth(self, node: int) -> int:
        return int(self._index.depth[node])

    def _draw(self, start: int, node: int) -> torch.Tensor:
        """Return the tokens [start, depth of `node`) of the path to `node`, int64, on the device."""
        return torch.from_numpy(self._tokens.between(start, node)).to(self._backend.device)

    def _prefill(
        self, tokens: torch.Tensor, start: int, kv: KV, state: State | None, cuts: list[int]
    ) -> _Computed:
        """Compute tokens from position `start` on, with checkpoints at `cuts`."""
        done = self._backend.prefill(tokens, start, kv if start else None, state, cuts)
        return _Computed(
            start, done.kv, {cut: Checkpoint(done.states[cut], done.logits[cut]) for cut in cuts}
        )

    def _restore(self, node: int) -> KV:
        """Return the KV of the tokens [0, depth of `node`), copied together from the edges on the path."""
        pieces = []
        while node != ROOT:
            if node in self._edges:
                pieces.append(self._edges[node].kv)
            node = int(self._index.parent[node])
        return join_kv(pieces[::-1]) if pieces else ()

    def started(self, index: Index) -> None:
        """Take the index that nodes are numbered in from now on."""
        self._index = index

    def looked_up(self, request: int, reused: int, checkpoints: tuple[int, ...]) -> None:
        """Restore the reused prefix, prefill the rest of the input, and run over the output."""
        input_node = int(self._requests.input_node[request])
        end_node = int(self._requests.end_node[request])
        start, end, last = self._depth(reused), self._depth(input_node), self._depth(end_node)
        kept = self._checkpoints.get(reused)
        due = {self._depth(node) for node in checkpoints}
        cuts = sorted({cut for cut in due if start < cut < end} | {end})
        fresh = self._draw(start, input_node)
        _wait_for(self._backend.device)
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        kv = self._restore(reused)
        _wait_for(self._backend.device)
        restored = time.perf_counter()
        if start < end:
            done = self._prefill(fresh, start, kv, kept.state if kept else None, cuts)
            at_end = done.checkpoints[end]
        else:
            assert kept is not None
            done, at_end = _Computed(start, (), {}), kept
        int(at_end.logits.argmax())  # the first token has arrived: nothing is left in a queue
        wall, cpu = time.perf_counter() - wall_start, time.process_time() - cpu_start
        restore = restored - wall_start
        error, spread = float("nan"), float("nan")
        if request in self._compare:
            whole = self._backend.prefill(self._draw(0, input_node), 0, None, None, ()).last_logits
            error = largest_error(at_end.logits, whole)
            spread = float(whole.double().std())
        self.measured.append(
            Measured(request, start, end, nbytes(kv), restore, wall, cpu, error, spread, self._held)
        )
        if last > end:
            before = join_kv([part for part in (kv, done.kv) if part])
            after = [cut for cut in sorted(due) if cut > end]
            output = self._prefill(self._draw(end, end_node), end, before, at_end.state, after)
            new = join_kv([part for part in (done.kv, output.kv) if part])
            done = _Computed(start, new, done.checkpoints | output.checkpoints)
        self._computed = done

    def inserted(self, request: int, events: NDArray[np.int32], bytes_held: int) -> None:
        """Do what the cache did, and compare the bytes.

        For requests whose logits are compared, also the bytes of the tensors' storages: a tensor that is a view keeps
        more alive than it shows.

        Raises:
            UserError: adapter and simulator hold different numbers of bytes.
        """
        for kind, node, other in events.tolist():
            self.event_counts[kind] += 1
            self._carry_out(kind, node, other)
        self._computed = _Computed(0, (), {})
        self.measured[-1] = self.measured[-1]._replace(held_bytes=self._held)
        alive = self._bytes_alive() if request in self._compare else self._held
        for held in (self._held, alive):
            if held != bytes_held:
                raise UserError(
                    f"backend '{self._backend.name}': holds {held:,} bytes after request {request} in processing"
                    f" order, the simulator {bytes_held:,}; the model's accounting does not fit the backend"
                )
        self._advance(1)

    def _bytes_alive(self) -> int:
        """Return the bytes of all storages behind what is held, each counted once."""
        tensors = [tensor for edge in self._edges.values() for tensor in edge.kv]
        tensors += [tensor for kept in self._checkpoints.values() for tensor in kept.state]
        storages = {one.data_ptr(): one.nbytes() for one in (t.untyped_storage() for t in tensors)}
        return sum(storages.values())

    def _carry_out(self, kind: int, node: int, other: int) -> None:
        """Do one event; see `marconi_sim.core.radix.journal`."""
        edges, depth = self._edges, self._depth(node)
        if kind == kinds.LEAF:
            computed, start = self._computed, self._depth(other)
            kv = slice_kv(computed.kv, start - computed.start, depth - computed.start)
            edges[node] = Edge(start, kv)
            self._held += nbytes(kv)
        elif kind == kinds.SPLIT:
            start, kv = edges[other]
            edges[node] = Edge(start, slice_kv(kv, 0, depth - start))
            edges[other] = Edge(depth, slice_kv(kv, depth - start, self._depth(other) - start))
        elif kind == kinds.MERGE:
            above = edges.pop(node)
            edges[other] = Edge(above.start, join_kv([above.kv, edges[other].kv]))
        elif kind == kinds.CHECKPOINT:
            self._checkpoints[node] = self._computed.checkpoints[depth]
            self.branch_checkpoints += depth < self.measured[-1].end
            self._held += nbytes(self._checkpoints[node].state)
        elif kind == kinds.DROP_STATE:
            self._held -= nbytes(self._checkpoints.pop(node).state)
        else:
            self._held -= nbytes(edges.pop(node).kv)
