"""Several policies on one model, request by request in turns, so that a busy minute of the machine hits all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.adapters.backend import Backend
from marconi_sim.adapters.torch import TorchCache
from marconi_sim.core.index.requests import Index
from marconi_sim.model import Model
from marconi_sim.policy.base import Policy
from marconi_sim.simulation.result import Result
from marconi_sim.simulation.simulate import replay_inputs, replay_workload
from marconi_sim.trace.export.drawn_tokens import Tokens
from marconi_sim.trace.load import Workload
from marconi_sim.validation.replaying import OnModel, on_model

_TIMES = ("seconds", "cpu_seconds", "restore_seconds")


class _Step(NamedTuple):
    """What the simulator told of one request."""

    reused: int
    checkpoints: tuple[int, ...]
    events: NDArray[np.int32]
    bytes_held: int


class _Recorder:
    """Writes down what a listener is told."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._told: tuple[int, tuple[int, ...]] = (0, ())

    def started(self, index: Index) -> None:
        self.index = index

    def looked_up(self, request: int, reused: int, checkpoints: tuple[int, ...]) -> None:
        self._told = (reused, checkpoints)

    def inserted(self, request: int, events: NDArray[np.int32], bytes_held: int) -> None:
        self.steps.append(_Step(*self._told, events.copy(), bytes_held))


def _record(
    workload: Workload, policy: Policy, model: Model, capacity: int
) -> tuple[Result, _Recorder]:
    recorder = _Recorder()
    result = replay_workload(workload, policy, model, capacity, listener=recorder)
    return result, recorder


def replay_in_lockstep(
    workload: Workload,
    policies: Sequence[Policy],
    model: Model,
    capacity: int,
    backend: Backend,
    *,
    seed: int,
    compare: Collection[int],
    repeats: int,
    advance: Callable[[int], None],
) -> list[OnModel]:
    """Replay a workload on a model under several policies, each with a cache of its own.

    The simulator's decisions are written down first and then carried out: request 0 under every policy, request 1 under
    every policy, and so on, another policy beginning each time.

    Args:
        workload: what is replayed.
        policies: radix-tree policies, or `vanilla`.
        model: the accounting of the backend's model.
        capacity: bytes of each cache.
        backend: the model.
        seed: of the tokens.
        compare: requests whose logits are compared with a prefill from nothing.
        repeats: how often all of it is done; each prefill's fastest time counts. Again and again the same prefill would
            be timed within one busy moment of the machine.
        advance: called with 1 after each request under each policy.

    Raises:
        UsageError: a policy cannot be followed request by request.
        UserError: the vocabulary is too small for the trace, or the bytes differ.
    """
    index, requests = replay_inputs(workload)
    tokens = Tokens(index, backend.vocabulary, seed)
    recorded = [_record(workload, policy, model, capacity) for policy in policies]

    def one_pass(compared: Collection[int]) -> list[TorchCache]:
        caches = [
            TorchCache(backend, index, requests, tokens, compare=compared, advance=advance)
            for _ in policies
        ]
        for cache, (_, recorder) in zip(caches, recorded, strict=True):
            cache.started(recorder.index)
        for request in range(workload.requests):
            for turn in range(len(policies)):
                which = (request + turn) % len(policies)
                step, cache = recorded[which][1].steps[request], caches[which]
                cache.looked_up(request, step.reused, step.checkpoints)
                cache.inserted(request, step.events, step.bytes_held)
        return caches

    caches = one_pass(compare)
    for _ in range(repeats - 1):
        for kept, again in zip(caches, one_pass(()), strict=True):
            kept.measured = [
                one._replace(**{key: min(getattr(one, key), getattr(two, key)) for key in _TIMES})
                for one, two in zip(kept.measured, again.measured, strict=True)
            ]
    return [on_model(result, cache) for (result, _), cache in zip(recorded, caches, strict=True)]
