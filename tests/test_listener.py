"""What a listener is told: enough to hold the cache's content without deciding anything."""

from __future__ import annotations

import random
from typing import Any

import any_policy
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from strategies import Case, cases, random_case, variants
from support import Replay, kernel_case, model, rows_of, workload
from test_kernels import bounded, shipped

from marconi_sim.base.errors import UsageError
from marconi_sim.core.index.build import NONE, ROOT
from marconi_sim.core.index.requests import Index
from marconi_sim.core.radix import journal as kinds
from marconi_sim.policy.base import Policy
from marconi_sim.simulation.simulate import replay_workload

FOLLOWED = {
    "vanilla": {},
    "unbounded": {},
    "sglang+": {},
    "marconi": {"alpha": 0.5},
    "marconi tuned": {"alpha": "bootstrap", "multiplier": 2},
}


class Store:
    """Holds KV as the tokens' positions and states as depths, and does as the events say."""

    def __init__(self, case: Replay) -> None:
        self.index, self.requests, self.shape = case.index, case.requests, case.shape
        self.kv: dict[int, range] = {}
        self.states: set[int] = set()
        self.reused: list[int] = []
        self.calls: list[tuple[str, int]] = []
        self.seen: set[int] = set()

    def depth(self, node: int) -> int:
        return int(self.index.depth[node])

    def path(self, node: int) -> list[int]:
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.index.parent[node])
        return nodes[::-1]

    def started(self, index: Index) -> None:
        self.index = index
        self.calls.append(("started", 0))

    def looked_up(self, request: int, reused: int, checkpoints: tuple[int, ...]) -> None:
        self.calls.append(("looked_up", request))
        self.reused.append(self.depth(reused))
        path = self.path(int(self.requests.input_node[request]))
        if reused != ROOT:
            assert reused in path
            assert reused in self.states
            pieces = [self.kv[node] for node in self.path(reused) if node in self.kv]
            covered = [position for piece in pieces for position in piece]
            assert covered == list(range(self.depth(reused)))
        whole = self.path(int(self.requests.end_node[request]))
        assert set(checkpoints) <= set(whole)
        assert all(
            self.depth(node) > self.depth(reused) or node in self.states for node in checkpoints
        )
        depths = [self.depth(node) for node in checkpoints]
        assert depths == sorted(depths)
        self.wanted = checkpoints

    def inserted(self, request: int, events: NDArray[np.int32], bytes_held: int) -> None:
        self.calls.append(("inserted", request))
        for kind, node, other in events.tolist():
            self.seen.add(kind)
            if kind == kinds.LEAF:
                assert node not in self.kv
                self.kv[node] = range(self.depth(other), self.depth(node))
            elif kind == kinds.SPLIT:
                edge = self.kv[other]
                assert edge.start < self.depth(node) < edge.stop
                self.kv[node] = range(edge.start, self.depth(node))
                self.kv[other] = range(self.depth(node), edge.stop)
            elif kind == kinds.MERGE:
                above, below = self.kv.pop(node), self.kv[other]
                assert above.stop == below.start
                assert node not in self.states
                self.kv[other] = range(above.start, below.stop)
            elif kind == kinds.CHECKPOINT:
                assert node in self.wanted
                assert node not in self.states
                assert node in self.kv
                self.states.add(node)
            elif kind == kinds.DROP_STATE:
                self.states.remove(node)
            else:
                assert kind == kinds.DROP_LEAF
                assert node not in self.states
                del self.kv[node]
            assert (other == NONE) == (kind >= kinds.CHECKPOINT)
        tokens = sum(len(piece) for piece in self.kv.values())
        assert (
            bytes_held == tokens * self.shape.kv_bytes + len(self.states) * self.shape.state_bytes
        )


def assert_followed(policy: Policy, case: Replay) -> Store:
    """Compare with a replay that nobody listens to: the listener changes nothing and is told everything."""
    store = Store(case)
    rows, findings = rows_of(policy, case)
    told = policy.replay(*case, listener=store)
    assert dict(told.findings) == findings
    assert store.reused == [row["reused"] for row in rows] == told.outcome.reused.tolist()
    assert told.outcome.totals.tolist() == policy.replay(*case).outcome.totals.tolist()
    total = case.requests.input_node.size
    assert store.calls[0] == ("started", 0)
    assert store.calls[1:] == [
        (call, i) for i in range(total) for call in ("looked_up", "inserted")
    ]
    return store


@pytest.mark.parametrize("name", FOLLOWED)
@given(case=cases())
@bounded
def test_shipped_policies_can_be_followed(name: str, case: Case):
    policy = shipped(name.split()[0])(**FOLLOWED[name])
    assert_followed(policy, kernel_case(case.requests, case.shape, case.capacity_bytes))


@given(variants(), cases())
@settings(bounded)
def test_any_rules_can_be_followed(variant: dict[str, Any], case: Case):
    policy = any_policy.policy_for(variant, "logical")
    assert_followed(policy, kernel_case(case.requests, case.shape, case.capacity_bytes))


@pytest.mark.parametrize("name", ["sglang+", "marconi"])
def test_every_kind_of_event_is_told(name: str):
    rng = random.Random(7)
    seen: set[int] = set()
    for _ in range(60):
        case = random_case(rng)
        seen |= assert_followed(
            shipped(name)(), kernel_case(case.requests, case.shape, case.capacity_bytes)
        ).seen
    assert seen == set(range(len(kinds.KINDS)))


@pytest.mark.parametrize("name", ["vllm+", "ceiling"])
def test_what_cannot_be_followed_says_so(name: str):
    case = random_case(random.Random(1))
    replay = kernel_case(case.requests, case.shape, case.capacity_bytes)
    with pytest.raises(UsageError, match="cannot be followed request by request; allowed"):
        shipped(name)().replay(*replay, listener=Store(replay))


def test_only_the_papers_rules_can_be_followed():
    case = random_case(random.Random(1))
    replay = kernel_case(case.requests, case.shape, case.capacity_bytes)
    with pytest.raises(UsageError, match="only a replay by the paper's rules"):
        replay_workload(
            workload(case.requests), shipped("marconi")(), model(case.shape), case.capacity_bytes,
            rules="artifact", listener=Store(replay),
        )  # fmt: skip
