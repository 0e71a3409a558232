"""The published code's rules: against its own results, a token-by-token reading of them, and the paper's fast path."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import make_artifact_golden
import naive_artifact
import numpy as np
import pytest
from strategies import Case, random_case
from support import Replay, kernel_case, model

import marconi_sim as ms
from marconi_sim.base.errors import UsageError
from marconi_sim.core.departures import ARTIFACT, PAPER, Departures
from marconi_sim.core.outcome import EVICTIONS, KV_TOKENS, PEAK_BYTES, STATES
from marconi_sim.fidelity.switches import SWITCHES
from marconi_sim.policy import artifact
from marconi_sim.policy.base import Policy, Replayed
from marconi_sim.policy.load import load_policy
from marconi_sim.trace.load import Workload

TRACES = ("branchy", "agent", "chat")
# Policy and parameters; `block_size` 0 stands for that of the case.
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sglang+", {}),
    ("marconi", {"alpha": 0.0}),
    ("marconi", {"alpha": 0.5}),
    ("marconi", {"alpha": 2.0}),
    ("marconi", {"multiplier": 1}),
    ("marconi", {"multiplier": 2}),
    ("vllm+", {"block_size": 0}),
)


@functools.cache
def published(shared: Path, name: str) -> tuple[Workload, dict[str, Any]]:
    expected = json.loads((shared / "golden" / "artifact" / f"{name}.json").read_text())
    return ms.load_trace(shared / "golden" / f"{name}.jsonl.gz"), expected


@functools.cache
def case_of(seed: int) -> tuple[Case, Replay]:
    case = random_case(random.Random(seed))
    capacity = max(case.capacity_bytes, 1)
    return case._replace(capacity_bytes=capacity), kernel_case(case.requests, case.shape, capacity)


def policy_of(name: str, params: dict[str, Any], case: Case) -> Policy:
    given = {"block_size": case.block} if "block_size" in params else params
    return load_policy(name)(**given)


def replay(
    name: str, params: dict[str, Any], seed: int, departures: Departures, check: bool = False
) -> Replayed:
    case, (index, requests, _, capacity) = case_of(seed)
    policy = policy_of(name, params, case)
    return artifact.replay_departing(
        policy, index, requests, model(case.shape), capacity, departures, check=check
    )


def columns(replayed: Replayed) -> list[Any]:
    return [*(column.tolist() for column in replayed.outcome), dict(replayed.findings)]


# The published code's own results


@pytest.mark.parametrize("name", TRACES)
def test_every_request_is_as_the_published_code_has_it(shared: Path, name: str):
    workload, expected = published(shared, name)
    assert len(expected["cases"]) == 16
    for case in expected["cases"]:
        result = ms.simulate(
            workload,
            policy=case["policy"],
            capacity=case["capacity_bytes"],
            model=case["model"],
            params=case["params"],
            rules="artifact",
        )
        summary, shape = result.summary, ms.load_model(case["model"])
        reused = np.empty(workload.requests, np.int64)
        reused[workload.order] = result.columns["reused_tokens"]
        size = shape.kv_bytes * summary["kv_tokens"] + shape.state_bytes * summary["states"]
        assert reused.tolist() == case["reused"]
        assert summary["states"] == case["final_states"]
        assert summary["kv_tokens"] == case["final_kv_tokens"]
        assert summary.get("tuned_alpha") == case["tuned_alpha"]
        assert round(size / case["capacity_bytes"], 4) == case["peak_over_capacity"]


@pytest.mark.parametrize("name", TRACES)
def test_without_departures_it_is_the_paper(shared: Path, name: str):
    workload, expected = published(shared, name)
    for case in expected["cases"]:
        given = {
            "policy": case["policy"],
            "capacity": case["capacity_bytes"],
            "model": case["model"],
            "params": case["params"],
        }
        plain = ms.simulate(workload, rules=PAPER, **given)
        fast = ms.simulate(workload, **given)
        assert {**plain.summary, "seconds": 0} == {**fast.summary, "seconds": 0}
        for column, values in fast.columns.items():
            assert (plain.columns[column] == values).all(), column


# Random traces


def assert_without_departures_it_is_the_fast_path(
    name: str, params: dict[str, Any], seeds: range
) -> None:
    for seed in seeds:
        case, arguments = case_of(seed)
        fast = policy_of(name, params, case).replay(*arguments)
        assert columns(replay(name, params, seed, PAPER, check=True)) == columns(fast), seed


def assert_it_is_the_token_by_token_reading(
    name: str, params: dict[str, Any], seeds: range
) -> None:
    for seed in seeds:
        case, _ = case_of(seed)
        if case.shape.attention == 0 or case.shape.ssm == 0:
            continue  # the published code divides by their bytes
        given = case.requests, case.capacity_bytes, case.shape
        if "multiplier" in params:
            expected = naive_artifact.bootstrap(*given, params["multiplier"], artifact.LAST)
        else:
            alpha = params.get("alpha", 0.0)
            expected = naive_artifact.replay(name, *given, alpha, case.block)
        found = replay(name, params, seed, ARTIFACT, check=True)
        totals = found.outcome.totals
        assert found.outcome.reused.tolist() == expected.reused, seed
        for position, value in (
            (STATES, expected.states),
            (KV_TOKENS, expected.kv_tokens),
            (EVICTIONS, expected.evictions),
            (PEAK_BYTES, expected.peak_bytes),
        ):
            assert totals[position] == value, (seed, position)
        assert found.findings.get("tuned_alpha") == expected.tuned_alpha, seed


@pytest.fixture
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the tuner count fewer requests than there are in the window of a trace of 20."""
    monkeypatch.setattr(artifact, "LAST", 3)


@pytest.mark.parametrize(("name", "params"), RUNS)
def test_random_traces_without_departures(name: str, params: dict[str, Any]):
    assert_without_departures_it_is_the_fast_path(name, params, range(60))


@pytest.mark.parametrize(("name", "params"), RUNS)
def test_random_traces_token_by_token(name: str, params: dict[str, Any], short_window: None):
    assert_it_is_the_token_by_token_reading(name, params, range(60))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), RUNS)
def test_many_random_traces(name: str, params: dict[str, Any], short_window: None):
    assert_without_departures_it_is_the_fast_path(name, params, range(60, 2000))
    assert_it_is_the_token_by_token_reading(name, params, range(60, 2000))


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_every_switch_changes_something(switch: Any, short_window: None):
    concerned = {case.split()[0] for case in switch.cases}
    effects = set()
    for seed in range(400):
        for name, params in RUNS:
            if name not in concerned:
                continue
            for base in (PAPER, ARTIFACT):
                flipped = base._replace(**{switch.name: base is PAPER})
                if columns(replay(name, params, seed, base)) != columns(
                    replay(name, params, seed, flipped, check=True)
                ):
                    effects.add(base)
        if len(effects) == 2:
            break
    assert effects == {PAPER, ARTIFACT}


def test_the_list_of_switches_is_complete():
    assert sorted(switch.name for switch in SWITCHES) == sorted(Departures._fields)


def test_no_switch_changes_a_case_it_does_not_concern():
    for switch in SWITCHES:
        concerned = {case.split()[0] for case in switch.cases}
        for seed in range(8):
            for name, params in RUNS:
                if name in concerned:
                    continue
                flipped = PAPER._replace(**{switch.name: True})
                same = columns(replay(name, params, seed, PAPER))
                assert columns(replay(name, params, seed, flipped)) == same, (switch.name, name)


# Frozen results of this repository


@pytest.mark.parametrize("name", make_artifact_golden.TRACES)
def test_own_results(name: str):
    frozen = (make_artifact_golden.FOLDER / f"{name}.json").read_text("utf-8")
    assert make_artifact_golden.content(name) == frozen


# How it is asked for


def test_results_name_their_rules():
    trace = ms.load_trace("taubench", sessions=5)
    given = {"policy": "sglang+", "capacity": "1GB"}
    assert ms.simulate(trace, **given).summary["rules"] == "paper"
    assert ms.simulate(trace, **given, rules="artifact").summary["rules"] == "artifact"
    one = PAPER._replace(inverse_age=True)
    assert ms.simulate(trace, **given, rules=one).row()["rules"] == "paper with inverse_age"
    all_but_two = ARTIFACT._replace(inverse_age=False, room_made_first=False)
    assert artifact.name_of(all_but_two) == "artifact without inverse_age, room_made_first"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rules": "artefact"}, r"rules 'artefact': unknown; did you mean 'artifact'\?"),
        ({"policy": "unbounded"}, "policy 'unbounded': the published code has no such policy"),
        ({"policy": "vanilla"}, "policy 'vanilla': the published code has no such policy"),
        ({"params": {"clock": "seconds"}}, "parameter clock=seconds: the published code's rules"),
    ],
)
def test_what_the_published_code_does_not_have_is_refused(given: dict[str, Any], message: str):
    trace = ms.load_trace("taubench", sessions=2)
    with pytest.raises(UsageError, match=message):
        ms.simulate(trace, **{"policy": "marconi", "rules": "artifact"} | given)
