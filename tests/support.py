"""The bridge between the naive reference and the compiled replay: the same case, told to both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import naive
import numpy as np

from marconi_sim.core import shape as core
from marconi_sim.core.blocks.replay import new_block_cache, replay_blocks
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import (
    BYPASSED,
    CAUSES,
    EVICTIONS,
    KV_TOKENS,
    STATES,
    Outcome,
    new_outcome,
)
from marconi_sim.model import PaperModel
from marconi_sim.policy import BlockPolicy, Policy, RadixPolicy
from marconi_sim.trace.arrivals import Arrivals
from marconi_sim.trace.compiled.build import Request, build
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.load import Workload, schedule

REPOSITORY = Path(__file__).resolve().parent.parent
NATIVE = Arrivals(start="native", gap="native")


def compiled(requests: Iterable[naive.Request]) -> Trace:
    """Return the compiled trace of requests of the reference, in their order."""
    return build(
        (
            Request(
                session=str(request.session),
                turn=request.turn,
                symbols=np.array(request.input + request.output, np.int32),
                input_tokens=len(request.input),
                output_tokens=len(request.output),
                arrival=request.arrival,
            )
            for request in requests
        ),
        {"source": "tests", "synthetic": True},
    )


def workload(requests: Iterable[naive.Request], name: str = "case") -> Workload:
    return schedule(compiled(requests), NATIVE, name=name)


def model(shape: naive.Shape) -> PaperModel:
    return PaperModel("case", Path("case.toml"), "a case", "tests", *shape)


class Replay(NamedTuple):
    """What the kernels replay."""

    index: Index
    requests: Requests
    shape: core.Shape
    capacity: int


def kernel_case(requests: list[naive.Request], shape: naive.Shape, capacity: int) -> Replay:
    """Return the arguments of `Policy.replay` for requests in processing order."""
    trace = compiled(requests)
    return Replay(
        Index(trace.parent, trace.depth),
        Requests(trace.input_node, trace.end_node, trace.arrival),
        model(shape).shape,
        capacity,
    )


def _row(outcome: Outcome, i: int, shape: core.Shape) -> dict[str, Any]:
    states, kv_tokens = int(outcome.totals[STATES]), int(outcome.totals[KV_TOKENS])
    return {
        "matched": int(outcome.matched[i]),
        "reused": int(outcome.reused[i]),
        "causes": dict(zip(CAUSES, outcome.missed[i].tolist(), strict=True)),
        "bytes": kv_tokens * shape.kv_bytes + states * shape.state_bytes,
        "states": states,
        "kv_tokens": kv_tokens,
        "evictions": int(outcome.totals[EVICTIONS]),
        "bypassed": int(outcome.totals[BYPASSED]),
    }


def _radix_rows(policy: RadixPolicy, case: Replay, check: bool) -> Iterator[dict[str, Any]]:
    values = {key: value for key, value in policy.params.items() if not isinstance(value, str)}
    run = policy._start(*case, check)
    for i in range(case.requests.input_node.size):
        run.advance(i, i + 1, values)
        yield _row(run.outcome, i, case.shape)


def _block_rows(policy: BlockPolicy, case: Replay) -> Iterator[dict[str, Any]]:
    index, requests, shape, capacity = case
    outcome = new_outcome(requests.input_node.size)
    cache = new_block_cache(index.parent.size)
    block = int(policy.params["block_size"])
    for i in range(requests.input_node.size):
        replay_blocks(index, cache, shape, block, capacity, requests, i, i + 1, outcome)
        yield _row(outcome, i, shape)


def step_by_step(policy: Policy, case: Replay, *, check: bool = False) -> list[dict[str, Any]]:
    """Return the rows that `naive.replay` returns: one request after the other, with the totals after each."""
    if isinstance(policy, RadixPolicy):
        return list(_radix_rows(policy, case, check))
    assert isinstance(policy, BlockPolicy)
    return list(_block_rows(policy, case))


def rows_of(
    policy: Policy, case: Replay, *, check: bool = False
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of one replay of the whole case, the totals in the last one only, and the findings."""
    outcome, findings, _ = policy.replay(*case, check=check)
    rows = [_row(outcome, i, case.shape) for i in range(case.requests.input_node.size)]
    for row in rows[:-1]:
        for total in ("bytes", "states", "kv_tokens", "evictions", "bypassed"):
            del row[total]
    return rows, dict(findings)
