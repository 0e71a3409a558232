"""The compiled replay against the token-by-token reference: equal after every request."""

from __future__ import annotations

import functools
import random
from typing import Any

import any_policy
import naive
import numba
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import RadixCache, Request, Shape
from strategies import Case, cases, random_case, random_variant, variants
from support import Replay, kernel_case, rows_of, step_by_step

from marconi_sim.policy.base import Policy
from marconi_sim.policy.load import load_policy

CLOCKS = ("logical", "seconds")
# What runs -> (shipped policy, parameters). `block_size` 0 stands for that of the case.
SHIPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "ceiling": ("ceiling", {}),
    "unbounded": ("unbounded", {}),
    "vllm+": ("vllm+", {"block_size": 0}),
    "vllm+ blocks of 7": ("vllm+", {"block_size": 7}),
    "sglang+": ("sglang+", {}),
    "sglang+ in seconds": ("sglang+", {"clock": "seconds"}),
    "marconi 0": ("marconi", {"alpha": 0.0}),
    "marconi 0.5": ("marconi", {"alpha": 0.5}),
    "marconi 1": ("marconi", {"alpha": 1.0}),
    "marconi 2": ("marconi", {"alpha": 2.0}),
    "marconi 0.7 in seconds": ("marconi", {"alpha": 0.7, "clock": "seconds"}),
    "bootstrap 1": ("marconi", {"alpha": "bootstrap", "multiplier": 1}),
    "bootstrap 2": ("marconi", {"alpha": "bootstrap", "multiplier": 2}),
    "bootstrap 3": ("marconi", {"alpha": "bootstrap", "multiplier": 3}),
}
TOTALS = ("bytes", "states", "kv_tokens", "evictions", "bypassed")
# The interpreted kernels of the pass with NUMBA_DISABLE_JIT=1 are 100 times slower.
MANY = 10 if numba.config.DISABLE_JIT else 240
bounded = settings(
    max_examples=MANY // 4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@functools.cache
def shipped(name: str) -> type[Policy]:
    return load_policy(name)


def reference(policy: str, params: dict[str, Any], case: Case) -> naive.Result:
    args = case.requests, case.capacity_bytes, case.shape
    if params.get("alpha") == "bootstrap":
        return naive.marconi_bootstrap(*args, params["multiplier"], check=True)
    if policy in ("sglang+", "marconi"):
        cache = RadixCache(case.capacity_bytes, case.shape, policy, alpha=params.get("alpha", 0.0))
        return naive.replay(cache, case.requests, clock=params.get("clock", "logical"), check=True)
    return naive.run(policy, *args, block=params.get("block_size", 0), check=True)


def without(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in keys} for row in rows]


def assert_shipped_agrees(name: str, case: Case) -> None:
    """Compare a whole replay, and one request by request if the policy has no phases."""
    policy, params = SHIPPED[name]
    if params.get("block_size") == 0:
        params = {**params, "block_size": case.block}
    expected = reference(policy, params, case)
    chosen = shipped(policy)(**params)
    replay = kernel_case(case.requests, case.shape, case.capacity_bytes)

    bound = policy in ("vanilla", "ceiling")  # simulates no cache, and so holds nothing
    whole, findings = rows_of(chosen, replay)
    kept = without(list(expected), TOTALS)
    if not bound:
        kept[-1] = expected[-1]
    assert without(whole, TOTALS if bound else ()) == kept
    if params.get("alpha") == "bootstrap":
        assert rows_of(chosen, replay, check=True) == (whole, findings)
        assert findings == {
            "tuned_alpha": expected.tuned_alpha,
            "first_eviction_request": expected.first_eviction_request,
        }
    elif not bound:
        assert step_by_step(chosen, replay, check=True) == expected


def assert_variant_agrees(variant: dict[str, Any], clock: str, case: Case) -> None:
    cache = RadixCache(case.capacity_bytes, case.shape, **variant)
    expected = naive.replay(cache, case.requests, clock=clock, check=True)
    policy = any_policy.policy_for(variant, clock)
    replay = kernel_case(case.requests, case.shape, case.capacity_bytes)
    assert step_by_step(policy, replay, check=True) == expected


# --- small traces ---


@pytest.mark.parametrize("name", SHIPPED)
@given(case=cases())
@bounded
def test_shipped_policies(name: str, case: Case):
    assert_shipped_agrees(name, case)


@given(variants(), st.sampled_from(CLOCKS), cases())
@settings(bounded, max_examples=MANY)
def test_any_rules_and_arithmetic(variant: dict[str, Any], clock: str, case: Case):
    assert_variant_agrees(variant, clock, case)


def assert_random_cases_agree(name: str, first_seed: int, count: int) -> None:
    for seed in range(first_seed, first_seed + count):
        rng = random.Random(f"{name} {seed}")
        case = random_case(rng)
        try:
            if name == "variants":
                assert_variant_agrees(random_variant(rng), rng.choice(CLOCKS), case)
            else:
                assert_shipped_agrees(name, case)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}: {case}")
            raise


@pytest.mark.parametrize("name", [*SHIPPED, "variants"])
def test_random_traces(name: str):
    assert_random_cases_agree(name, 0, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("name", [*SHIPPED, *(f"variants {i}" for i in range(4))])
def test_ten_thousand_random_traces(name: str, chunk: int):
    part = int(name.split()[1]) if name.startswith("variants") else 0
    first = 1_000_000 * part + 1000 * (chunk + 1)
    assert_random_cases_agree(name.split()[0] if part or "variants" in name else name, first, 1000)


# --- larger traces ---


def forest(rng: random.Random, requests: int, longest: int) -> list[Request]:
    """Return sessions that grow out of each other at random places, served in random order."""
    served: list[Request] = []
    last: dict[int, Request] = {}
    for i in range(requests):
        session = rng.randrange(requests // 4)
        if session in last and rng.random() < 0.8:
            before = last[session].input + last[session].output
        elif served:
            other = rng.choice(served)
            before = (other.input + other.output)[: rng.randrange(longest)]
        else:
            before = ()
        head = before if len(before) < 4 * longest else before[:longest]
        tail = tuple(rng.randrange(50) for _ in range(rng.randint(1, longest)))
        answer = tuple(rng.randrange(50) for _ in range(rng.randint(0, longest // 2)))
        turn = last[session].turn + 1 if session in last else 0
        last[session] = Request(session, turn, i / 4, head + tail, answer)
        served.append(last[session])
    return served


HUNDREDS = Shape(2, 1, 1, 8, 2)  # a state costs as much as 3 tokens


@functools.cache
def hundreds() -> tuple[list[Request], int]:
    """Return a trace and a capacity at which about 300 nodes are live and every request evicts."""
    return forest(random.Random(7), 800, 12), 64 * 3000 + 192 * 300


@pytest.mark.parametrize("name", ["sglang+", "marconi 0", "marconi 0.5", "marconi 2", "vllm+"])
def test_hundreds_of_live_nodes(name: str):
    requests, capacity = hundreds()
    assert_shipped_agrees(name, Case(requests, HUNDREDS, capacity, block=4))


@pytest.mark.parametrize(
    "variant",
    [
        {"value": any_policy.strategies.gdsf, "score": any_policy.strategies.SCORES["value"], "normalised": False},
        {"admits": ("branch_point", "input_end"), "evicts": "leaves", "alpha": 0.5},
        {"admits": (), "touches": "path"},
    ],
    ids=["gdsf", "no sequence ends", "no states"],
)  # fmt: skip
def test_hundreds_of_live_nodes_under_other_rules(variant: dict[str, Any]):
    requests, capacity = hundreds()
    defaults = {
        "policy": "marconi", "alpha": 0.0, "admits": ("branch_point", "sequence_end"), "value": None, "score": None,
        "evicts": "at_most_one_child", "touches": "reused_node", "normalised": True,
    }  # fmt: skip
    case = Case(requests, HUNDREDS, capacity, block=4)
    assert_variant_agrees({**defaults, **variant}, "logical", case)


@pytest.mark.compiled
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 10.0])
def test_search_finds_the_victim_of_a_scan_among_thousands(alpha: float):
    requests = forest(random.Random(8), 8000, 20)
    replay = kernel_case(requests, HUNDREDS, 64 * 40_000 + 192 * 3000)
    outcome, _, _ = shipped("marconi")(alpha=alpha).replay(*replay, check=True)
    states, evictions = int(outcome.totals[2]), int(outcome.totals[0])
    assert states > 1000
    assert evictions > 2000


def test_many_touches_of_few_entries():
    # Room for few entries means few slots in the order of touches: it has to close its gaps again and again.
    rng = random.Random(9)
    texts = [tuple(rng.randrange(9) for _ in range(6)) for _ in range(8)]
    requests = []
    for i in range(600):
        text = texts[rng.randrange(3)] if rng.random() < 0.97 else rng.choice(texts)
        requests.append(Request(i, 0, float(i), text, ()))
    case = Case(requests, HUNDREDS, 64 * 24 + 192 * 4, block=2)
    for name in ("sglang+", "marconi 1", "marconi 0.7 in seconds"):
        policy, params = SHIPPED[name]
        run = shipped(policy)(**params)._start(*kernel_case(*case[:3]), False)
        assert 0 < run.cache.order.node.size < len(requests) / 4
        assert_shipped_agrees(name, case)


# --- metamorphic ---


@given(cases())
@settings(bounded)
def test_a_longer_trace_begins_like_a_shorter_one(case: Case):
    whole = kernel_case(case.requests, case.shape, case.capacity_bytes)
    half = kernel_case(
        case.requests[: len(case.requests) // 2 + 1], case.shape, case.capacity_bytes
    )
    for policy in (shipped("marconi")(alpha=0.5), shipped("vllm+")(block_size=case.block)):
        rows = step_by_step(policy, half)
        assert step_by_step(policy, whole)[: len(rows)] == rows


@given(cases())
@settings(bounded)
def test_room_for_everything_is_as_good_as_no_limit(case: Case):
    tokens = sum(len(request.input + request.output) for request in case.requests)
    enough = (
        tokens * case.shape.kv_bytes_per_token + 3 * len(case.requests) * case.shape.state_bytes
    )
    replay = kernel_case(case.requests, case.shape, enough + 1)
    expected = step_by_step(shipped("unbounded")(), replay)
    assert step_by_step(shipped("marconi")(alpha=2.0), replay) == expected
    assert all(row["evictions"] == row["bypassed"] == 0 for row in expected)


def test_replaying_twice_gives_the_same():
    requests, capacity = hundreds()
    replay = Replay(*kernel_case(requests, HUNDREDS, capacity))
    policy = shipped("marconi")(alpha="bootstrap", multiplier=3)
    assert rows_of(policy, replay) == rows_of(policy, replay)
