"""The Python interface: `import marconi_sim as ms`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from naive import CAUSES, Request
from support import compiled, workload

import marconi_sim as ms
from marconi_sim.base import catalogue
from marconi_sim.trace.compiled.trace import save


@pytest.fixture(scope="module")
def sessions() -> ms.Workload:
    return ms.load_trace("taubench", sessions=30)


def small(**options: Any) -> ms.Result:
    requests = [Request(i % 3, i // 3, float(i), (i % 3, 1, 2, i // 3), (5,)) for i in range(12)]
    return ms.simulate(
        workload(requests), **{"policy": "vllm+", "params": {"block_size": 2}} | options
    )


def test_public_names():
    for name in ms.__all__:
        assert getattr(ms, name) is not None
    assert set(dir(ms)) == set(ms.__all__)
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        ms.simulat  # noqa: B018


def test_importing_the_package_is_cheap():
    code = "import sys, marconi_sim; print([m for m in ('numba', 'numpy', 'pandas', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_simulate_is_the_function_whatever_was_imported_before():
    code = "import marconi_sim.simulation.simulate; import marconi_sim as ms; print(callable(ms.simulate))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_summary_is_plain_python(sessions: ms.Workload):
    summary = ms.simulate(sessions, policy="sglang+").summary
    assert json.loads(json.dumps(summary)) == summary
    assert summary["requests"] == sessions.requests
    assert summary["reused_tokens"] + sum(summary["missed"].values()) == summary["input_tokens"]


def test_requests_are_a_data_frame(sessions: ms.Workload):
    result = ms.simulate(sessions, policy="sglang+")
    frame = result.requests
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == sessions.requests
    assert frame["reused_tokens"].sum() == result.summary["reused_tokens"]
    assert (frame[list(CAUSES)].sum(axis=1) + frame["reused_tokens"] == frame["input_tokens"]).all()


def test_results_can_be_written(tmp_path: Path):
    result = small()
    result.write_requests(tmp_path / "requests.parquet")
    result.write_summary(tmp_path / "run.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "requests.parquet"), result.requests)
    (row,) = pq.read_table(tmp_path / "run.parquet").to_pylist()
    assert row == result.row()
    assert row["param_block_size"] == "2"
    assert row["missed_cold"] == result.summary["missed"]["cold"]
    with pytest.raises(ms.UserError, match="does not exist"):
        result.write_summary(tmp_path / "absent" / "run.parquet")
    for write in (result.write_summary, result.write_requests):
        with pytest.raises(
            ms.UsageError, match=r"run\.csv: a table is written as Parquet, not .csv"
        ):
            write(tmp_path / "run.csv")


def test_a_trace_by_name_by_path_and_as_a_workload(tmp_path: Path):
    path = tmp_path / "mine.parquet"
    save(compiled([Request(0, 0, 0.0, (1, 2), (3,)), Request(0, 1, 1.0, (1, 2, 3, 4), ())]), path)
    for trace in (path, str(path), ms.load_trace(path)):
        assert ms.simulate(trace, policy="unbounded").summary["reused_tokens"] == 3
    (tmp_path / "traces").mkdir()
    path.rename(tmp_path / "traces" / "mine.parquet")
    assert ms.simulate("mine", policy="unbounded", search=[tmp_path]).summary["trace"] == "mine"


def test_a_policy_by_name_class_and_instance():
    vllm = ms.load_policy("vllm+")
    expected = small().requests
    for policy, params in ((vllm, {"block_size": 2}), (vllm(block_size=2), None)):
        assert small(policy=policy, params=params).requests.equals(expected)
    with pytest.raises(ms.UsageError, match="the policy is an instance already"):
        small(policy=vllm(block_size=2), params={"block_size": 4})


def test_a_model_by_name_and_as_an_object():
    light = ms.load_model("ssm-light")
    assert small(model=light).requests.equals(small(model="ssm-light").requests)
    assert small(model=light).summary["model"] == "ssm-light"
    assert small().summary["model"] == "hybrid-7b"


@pytest.mark.parametrize(
    ("capacity", "count"),
    [
        (10**9, 10**9),
        (1e9, 10**9),
        (np.int64(5), 5),
        (np.float64(5.0), 5),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        (None, 60 * 10**9),
    ],
)
def test_capacities(capacity: Any, count: int):
    assert small(capacity=capacity, policy="vanilla", params={}).summary["capacity_bytes"] == count


@pytest.mark.parametrize(
    "capacity", [0, -1, 1.5, True, "lots", float("nan"), float("inf"), 2**63, [1]]
)
def test_capacities_that_are_none(capacity: Any):
    with pytest.raises(ms.UsageError, match="capacity"):
        small(capacity=capacity)


def test_names_that_are_unknown():
    with pytest.raises(ms.UsageError, match="did you mean 'marconi'"):
        small(policy="marconni", params={})
    with pytest.raises(ms.UsageError, match="did you mean 'taubench'"):
        ms.simulate("taubenhc")
    with pytest.raises(ms.UsageError, match="block_size"):
        small(params={"block_size": "big"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": 3}, "policy 3: of type int, expected a name, a path, or a policy's class"),
        ({"policy": None}, "policy None"),
        ({"policy": int}, "policy int: a class that is not derived from Policy"),
        ({"model": 3.5}, "model 3.5: of type float, expected a name, a path or a model"),
        (
            {"params": ["alpha", 1]},
            r"params \['alpha', 1\]: of type list, expected parameters by name",
        ),
        ({"params": "alpha=1"}, "params 'alpha=1': of type str"),
        ({"params": {3: 1}}, "a name in params 3: of type int, expected text"),
        ({"rules": 5}, "rules 5: of type int, expected 'paper', 'artifact' or Departures"),
        ({"check": "yes"}, "check 'yes': of type str, expected True or False"),
        ({"search": "mine"}, "search 'mine': expected a list of folders"),
        ({"search": 3}, "search 3: expected a list of folders"),
        ({"search": [3]}, "search 3: of type int, expected a list of folders"),
    ],
)
def test_arguments_of_a_wrong_type(options: dict[str, Any], said: str):
    with pytest.raises(ms.UsageError, match=said) as error:
        small(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ms.simulate(7), "trace 7: of type int, expected a name, a path or a workload"),
        (lambda: ms.simulate(pd.DataFrame({"a": range(99)})), r"trace .*\.\.\.: of type DataFrame"),
        (lambda: ms.load_trace(7), "trace 7: of type int, expected a name or the path of a file"),
        (lambda: ms.load_trace("taubench", sessions=1.5), "sessions 1.5"),
        (lambda: ms.load_trace("taubench", sessions_per_second="2"), "sessions_per_second 2"),
        (lambda: ms.load_trace("taubench", seed=1.5), "seed 1.5"),
        (lambda: ms.load_trace("taubench", search="mine"), "search 'mine'"),
        (lambda: ms.load_policy(None), "policy None: of type NoneType"),
        (lambda: ms.load_model(["hybrid-7b"]), r"model \['hybrid-7b'\]: of type list"),
        (lambda: ms.vary("hybrid-7b", {}), "model 'hybrid-7b': of type str, expected a model"),
        (
            lambda: ms.vary(ms.load_model("hybrid-7b"), "mlp_layers"),
            "changes 'mlp_layers': of type str",
        ),
        (lambda: ms.sweep(7), "experiment 7: of type int"),
        (lambda: ms.sweep("fig11", out=7), "out 7: of type int"),
        (lambda: ms.sweep("fig11", scheduler=7), "scheduler 7: of type int"),
        (lambda: ms.sweep("fig11", resume="no"), "resume 'no': of type str"),
        (lambda: ms.sweep("fig11", search="mine"), "search 'mine'"),
        (lambda: small().write_summary(7), "path 7: of type int"),
    ],
)
def test_arguments_of_other_functions_of_a_wrong_type(call: Callable[[], Any], said: str):
    with pytest.raises(ms.UsageError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_recipes_parameters_are_for_the_policy_that_the_name_finds(tmp_path: Path):
    def multiplier(trace: str, policy: Any, *search: Path) -> int:
        few = ms.load_trace(trace, sessions=3, search=search)
        return ms.simulate(few, policy=policy, search=search).summary["params"]["multiplier"]

    shipped = ms.load_policy("marconi")
    assert shipped.path is not None
    for same in ("marconi", shipped.path, shipped):
        assert multiplier("lmsys", same) == 15
    (tmp_path / "traces" / "data").mkdir(parents=True)
    (tmp_path / "policies").mkdir()
    own = {name: tmp_path / "policies" / f"{name}.py" for name in ("marconi", "mine")}
    for name, path in own.items():
        text = shipped.path.read_text().replace('"""', f'"""Copied as {name}. ', 1)
        path.write_text(text)
    assert multiplier("lmsys", own["marconi"]) == 5  # another of the same name

    recipe = catalogue.find("traces", "lmsys")
    shutil.copy(recipe.parent / "data" / "lmsys.parquet", tmp_path / "traces" / "data")
    text = recipe.read_text().replace("[policy_defaults.marconi]", "[policy_defaults.mine]")
    (tmp_path / "traces" / "chats.toml").write_text(text)
    for same in ("mine", own["mine"]):
        assert multiplier("chats", same, tmp_path) == 15
    assert multiplier("lmsys", "mine", tmp_path) == 5  # the shipped trace names none for it


def test_a_result_does_not_depend_on_earlier_runs(sessions: ms.Workload):
    def rows(policy: str) -> pd.DataFrame:
        return ms.simulate(sessions, policy=policy, capacity="1GB").requests

    first = rows("sglang+")
    rows("vllm+")
    assert rows("sglang+").equals(first)


def test_more_capacity_is_a_different_question_with_the_same_input(sessions: ms.Workload):
    rates = []
    for capacity in ("100MB", "2GB", "100GB"):
        summary = ms.simulate(sessions, policy="sglang+", capacity=capacity).summary
        assert summary["peak_bytes"] <= summary["capacity_bytes"]
        rates.append(summary["token_hit_rate"])
    unbounded = ms.simulate(sessions, policy="unbounded").summary["token_hit_rate"]
    ceiling = ms.simulate(sessions, policy="ceiling").summary["token_hit_rate"]
    assert 0 <= rates[0] < rates[1] < rates[2] == unbounded <= ceiling


def test_hashes_say_what_was_run():
    one, two = small(), small(params={"block_size": 4})
    assert one.summary["trace_sha256"] == two.summary["trace_sha256"]
    assert one.summary["policy_sha256"] == two.summary["policy_sha256"]
    assert (
        one.summary["policy_sha256"] != small(policy="vanilla", params={}).summary["policy_sha256"]
    )

    class Local(ms.load_policy("vanilla")):
        """Not from a file of its own."""

    assert small(policy=Local, params={}).summary["policy"] == "vanilla"


def test_synthetic_is_said():
    assert small().summary["synthetic"] is True
    assert ms.simulate("lmsys", policy="vanilla").summary["synthetic"] is True
    assert ms.simulate("taubench", policy="vanilla").summary["synthetic"] is False
