"""Replaying a workload on a model: the simulator decides, the adapter carries it out and measures."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import pandas as pd

from marconi_sim.adapters.backend import Backend
from marconi_sim.adapters.torch import TorchCache
from marconi_sim.base.errors import UserError
from marconi_sim.core.radix.journal import KINDS
from marconi_sim.model import Model
from marconi_sim.policy.base import Policy
from marconi_sim.simulation.result import Result
from marconi_sim.simulation.simulate import replay_inputs, replay_workload, simulate
from marconi_sim.trace.export.drawn_tokens import Tokens
from marconi_sim.trace.load import Workload


class OnModel(NamedTuple):
    """A replay on a model.

    result: what the simulator says.
    requests: one row per request, `result.requests` with what was measured (`marconi_sim.adapters.torch.Measured`):
        ttft, ttft_cpu and restore_seconds (seconds), restored_bytes, logit_error, logit_spread, held_bytes.
    events: kind of event -> how often it was carried out.
    branch_checkpoints: how many states were kept at a position inside an input.
    """

    result: Result
    requests: pd.DataFrame
    events: dict[str, int]
    branch_checkpoints: int


def unbounded_bytes(workload: Workload, model: Model) -> int:
    """Return the bytes of a cache that never evicts anything, after the last request."""
    return int(simulate(workload, policy="unbounded", model=model).summary["peak_bytes"])


def on_model(result: Result, cache: TorchCache) -> OnModel:
    """Put what the simulator says and what was measured side by side.

    Raises:
        UserError: they do not agree about what was reused.
    """
    measured = pd.DataFrame(cache.measured)
    rows = result.requests
    if not rows.reused_tokens.eq(measured.start).all():
        raise UserError("the model did not reuse what the simulator did; please report it")
    rows = rows.assign(
        ttft=measured.seconds,
        ttft_cpu=measured.cpu_seconds,
        restored_bytes=measured.restored_bytes,
        restore_seconds=measured.restore_seconds,
        logit_error=measured.logit_error,
        logit_spread=measured.logit_spread,
        held_bytes=measured.held_bytes,
    )
    events = dict(zip(KINDS, cache.event_counts.tolist(), strict=True))
    return OnModel(result, rows, events, cache.branch_checkpoints)


def replay_on_model(
    workload: Workload,
    policy: Policy,
    model: Model,
    capacity: int,
    backend: Backend,
    *,
    seed: int = 0,
    compare: Collection[int] = (),
    advance: Callable[[int], None] = lambda _: None,
) -> OnModel:
    """Replay a workload on a model.

    Args:
        workload: what is replayed; its tokens are drawn at random.
        policy: a radix-tree policy, or `vanilla`.
        model: the accounting of the backend's model; its bytes must be the backend's.
        capacity: bytes.
        backend: the model.
        seed: of the tokens.
        compare: requests whose logits are compared with a prefill from nothing.
        advance: called with 1 after each request.

    Raises:
        UsageError: the policy cannot be followed request by request.
        UserError: the vocabulary is too small for the trace, or the bytes differ.
    """
    index, requests = replay_inputs(workload)
    tensors = TorchCache(
        backend, index, requests, Tokens(index, backend.vocabulary, seed),
        compare=compare, advance=advance,
    )  # fmt: skip
    result = replay_workload(workload, policy, model, capacity, listener=tensors)
    return on_model(result, tensors)
