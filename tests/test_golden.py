"""The compiled replay against frozen results: those of an independent implementation, and those of our reference."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from support import kernel_case, rows_of, step_by_step

import marconi_sim as ms
from marconi_sim.policy.load import load_policy
from marconi_sim.simulation.simulate import simulate
from marconi_sim.trace.load import Workload

PAPER = ("branchy", "agent", "chat")
OWN = Path(__file__).parent / "golden"
SHARED_MODELS = {
    "hybrid-7b": (4, 24, 28, 4096, 128),
    "ssm-light": (24, 12, 36, 2048, 16),
    "ssm-heavy": (4, 32, 36, 4096, 128),
}


@functools.cache
def paper(shared: Path, name: str) -> tuple[Workload, dict[str, Any]]:
    """Return a shared trace, read from its JSONL, and its expected results."""
    workload = ms.load_trace(shared / "golden" / f"{name}.jsonl.gz")
    return workload, json.loads((shared / "golden" / "paper" / f"{name}.json").read_text())


def in_file_order(workload: Workload, column: np.ndarray) -> list[int]:
    unsorted = np.empty_like(column)
    unsorted[workload.order] = column
    return unsorted.tolist()


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_models_are_those_of_the_shared_results(name: str):
    model = ms.load_model(name)
    assert SHARED_MODELS[name] == (
        model.attention_layers,
        model.ssm_layers,
        model.mlp_layers,
        model.model_dimension,
        model.state_dimension,
    )


@pytest.mark.parametrize("name", PAPER)
def test_shared_results(shared: Path, name: str):
    workload, expected = paper(shared, name)
    assert workload.requests == expected["requests"]
    assert len(expected["cases"]) >= 20
    for case in expected["cases"]:
        result = simulate(
            workload,
            policy=case["policy"],
            capacity=case["capacity_bytes"],
            model=case["model"],
            params={"block_size" if key == "block" else key: value for key, value in case["params"].items()},
        )  # fmt: skip
        summary = result.summary
        found = {
            "reused": in_file_order(workload, result.columns["reused_tokens"]),
            "matched": in_file_order(workload, result.columns["matched_tokens"]),
            "tuned_alpha": summary.get("tuned_alpha"),
            "first_eviction_request": summary.get("first_eviction_request"),
            **{key: summary[key] for key in ("evictions", "bypassed", "states", "kv_tokens")},
        }
        known = found.keys() & case.keys()
        assert {key: found[key] for key in known} == {key: case[key] for key in known}


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize(
    ("policy", "key"), [("unbounded", "unbounded_reused"), ("ceiling", "seen")]
)
def test_shared_results_without_limit(shared: Path, name: str, policy: str, key: str):
    workload, expected = paper(shared, name)
    result = simulate(workload, policy=policy, capacity=1)
    assert in_file_order(workload, result.columns["reused_tokens"]) == expected[key]
    assert result.summary["input_tokens"] == expected["input_tokens"]


@pytest.mark.parametrize("name", [path.stem for path in sorted(OWN.glob("*.json"))])
def test_own_results(name: str):
    golden = json.loads((OWN / f"{name}.json").read_text())
    requests = [naive.Request(*row[:3], tuple(row[3]), tuple(row[4])) for row in golden["requests"]]
    replay = kernel_case(requests, naive.Shape(*golden["shape"]), golden["capacity_bytes"])
    assert len(golden["runs"]) == 9
    for run in golden["runs"]:
        bootstrap = run["policy"] == "marconi_bootstrap"
        params = {**run["params"], **({"alpha": "bootstrap"} if bootstrap else {})}
        if run["policy"] == "vllm+":
            params["block_size"] = golden["block"]
        policy = load_policy("marconi" if bootstrap else run["policy"])(**params)
        rows, findings = rows_of(policy, replay, check=True)
        assert findings.get("tuned_alpha") == run["tuned_alpha"]
        assert findings.get("first_eviction_request") == run["first_eviction_request"]
        for key in ("matched", "reused"):
            assert [row[key] for row in rows] == run[key]
        for cause in naive.CAUSES:
            nothing = [0] * len(requests)
            assert [row["causes"][cause] for row in rows] == run["missed"].get(cause, nothing)
        if run["policy"] in ("vanilla", "ceiling"):
            continue
        totals = ("bytes", "states", "kv_tokens", "evictions", "bypassed")
        assert {key: rows[-1][key] for key in totals} == {key: run[key][-1] for key in totals}
        if not bootstrap:
            stepped = step_by_step(policy, replay)
            assert {key: [row[key] for row in stepped] for key in totals} == {
                key: run[key] for key in totals
            }
