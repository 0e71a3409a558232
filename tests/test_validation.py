"""A replay on a real model: the simulator's decisions on tensors, exact, to the byte, and mistakes that show."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")

from marconi_sim.adapters import memory  # noqa: E402
from marconi_sim.adapters.exactness import EXACT, NOTICED  # noqa: E402
from marconi_sim.adapters.load import model_of, open_backend  # noqa: E402
from marconi_sim.base.errors import UsageError, UserError  # noqa: E402
from marconi_sim.cli import cli  # noqa: E402
from marconi_sim.core.radix.journal import KINDS  # noqa: E402
from marconi_sim.policy.load import load_policy  # noqa: E402
from marconi_sim.simulation.simulate import replay_workload  # noqa: E402
from marconi_sim.trace.export.reduce import reduce_workload  # noqa: E402
from marconi_sim.trace.load import load_trace  # noqa: E402
from marconi_sim.validation.exact import check_backend, prepare_exact  # noqa: E402
from marconi_sim.validation.measurement import measure, prepare  # noqa: E402
from marconi_sim.validation.replaying import (  # noqa: E402
    OnModel,
    replay_on_model,
    unbounded_bytes,
)
from marconi_sim.validation.ttft import pool  # noqa: E402

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny():
    return open_backend("tiny")


@pytest.fixture(scope="module")
def small_workload():
    return reduce_workload(load_trace("taubench"), 60, 60)


def on_tiny(tiny, workload, policy: str, **options: Any) -> tuple[OnModel, int]:
    model = model_of(tiny)
    capacity = int(unbounded_bytes(workload, model) * 0.4)
    params = options.pop("params", {})
    return replay_on_model(
        workload, load_policy(policy)(**params), model, capacity, tiny, **options
    ), capacity


# --- the adapter ---


@pytest.mark.parametrize(
    ("policy", "params"),
    [("sglang+", {}), ("marconi", {"alpha": 0.5}), ("marconi", {}), ("unbounded", {})],
)
def test_every_request_is_exact_and_every_byte_is_the_simulators(
    tiny, small_workload, policy, params
):
    run, capacity = on_tiny(tiny, small_workload, policy, params=params, compare=range(60))
    alone = replay_workload(small_workload, load_policy(policy)(**params), model_of(tiny), capacity)
    for column in ("matched_tokens", "reused_tokens"):
        assert run.requests[column].tolist() == alone.requests[column].tolist()
    assert {k: v for k, v in run.result.summary.items() if k != "seconds"} == {
        k: v for k, v in alone.summary.items() if k != "seconds"
    }
    reusing = run.requests.reused_tokens > 0
    assert reusing.sum() > 50
    assert run.requests.logit_error.max() < EXACT
    # `inserted` compares after every request; here that there was something to compare
    assert run.requests.held_bytes.max() > 0
    assert policy == "unbounded" or run.requests.held_bytes.max() <= capacity
    assert run.events["leaf"] > 40
    assert run.events["split"] > 10
    assert run.branch_checkpoints > 10
    if policy == "marconi":
        assert min(run.events.values()) > 10


def test_without_a_cache_nothing_is_held_or_reused(tiny, small_workload):
    run, _ = on_tiny(tiny, small_workload, "vanilla")
    assert set(run.events) == set(KINDS)
    assert sum(run.events.values()) == 0
    assert run.requests.held_bytes.sum() == run.requests.restored_bytes.sum() == 0
    assert run.requests.logit_error.isna().all()
    assert (run.requests.ttft > 0).all()


def test_restored_bytes_are_those_of_the_reused_prefix(tiny, small_workload):
    run, _ = on_tiny(tiny, small_workload, "sglang+")
    expected = run.requests.reused_tokens * model_of(tiny).kv_bytes
    assert run.requests.restored_bytes.tolist() == expected.tolist()


def test_an_input_cached_to_its_end_is_answered_from_its_logits(tiny, tmp_path: Path):
    first = {
        "session_id": 0,
        "turn_id": 0,
        "ts": 0.0,
        "input_tokens": [5, 6, 7],
        "output_tokens": [],
    }
    again = {**first, "session_id": 1, "ts": 1.0, "output_tokens": [8, 9]}
    path = tmp_path / "twice.jsonl"
    path.write_bytes(orjson.dumps(first) + b"\n" + orjson.dumps(again) + b"\n")
    run, _ = on_tiny(tiny, load_trace(path), "unbounded", compare=(0, 1))
    assert run.requests.reused_tokens.tolist() == [0, 3]
    assert run.requests.logit_error.max() < EXACT


def test_other_tokens_other_logits_same_decisions(tiny, small_workload):
    one, _ = on_tiny(tiny, small_workload, "marconi", seed=1, compare=(59,))
    two, _ = on_tiny(tiny, small_workload, "marconi", seed=2, compare=(59,))
    assert one.events == two.events
    assert one.requests.logit_error[59] < EXACT > two.requests.logit_error[59]


def test_an_accounting_that_does_not_fit_is_noticed(tiny, small_workload):
    model = model_of(tiny)
    for wrong in (
        {"conv_columns": "kernel"},
        {"state_dtype": "bfloat16"},
        {"kv_dtype": "bfloat16"},
    ):
        with pytest.raises(UserError, match=r"bytes after request 0 .* the simulator"):
            replay_on_model(
                small_workload, load_policy("marconi")(), model.with_options(wrong), 10**9, tiny
            )


def test_a_policy_of_blocks_is_refused(tiny, small_workload):
    with pytest.raises(UsageError, match=r"'vllm\+': a cache of blocks cannot be followed"):
        on_tiny(tiny, small_workload, "vllm+")


# --- exactness ---


@pytest.mark.parametrize("name", ["tiny", "bamba", "qwen3_next", "falcon_h1"])
def test_mistakes_show_and_everything_else_is_exact(name: str):
    if name != "tiny":
        pytest.importorskip("transformers")
    setting = prepare_exact("taubench", "marconi", 24, 50)
    found = check_backend(setting, name)
    assert found.passed
    assert found.error < EXACT
    assert min(found.one_token_off, found.wrong_prefix) > NOTICED
    assert min(found.one_token_off_noticed, found.wrong_prefix_noticed) > found.reusing / 2
    assert found.requests == 24


@pytest.mark.parametrize(
    ("policy", "verdict"), [("vanilla", "nothing reused"), ("sglang+", "exact")]
)
def test_what_is_said_of_other_policies(policy: str, verdict: str):
    found = check_backend(prepare_exact("taubench", policy, 24, 50), "tiny")
    assert found.verdict == verdict
    assert found.passed == (verdict == "exact")


def test_a_tensor_that_keeps_a_larger_one_alive_is_noticed(
    tiny, small_workload, monkeypatch: pytest.MonkeyPatch
):
    from marconi_sim.adapters import torch as adapter

    def view(kv, start: int, end: int):
        return tuple(tensor[..., start:end, :] for tensor in kv)

    monkeypatch.setattr(adapter, "slice_kv", view)
    with pytest.raises(UserError, match="bytes after request"):
        on_tiny(tiny, small_workload, "marconi", compare=range(60))


def test_a_dropped_tensor_that_is_kept_is_noticed(
    tiny, small_workload, monkeypatch: pytest.MonkeyPatch
):
    from marconi_sim.adapters.torch import TorchCache

    class Forgets(dict):  # type: ignore[type-arg]
        def pop(self, key):
            return self[key]

    started = TorchCache.__init__

    def start(self, *args, **options):
        started(self, *args, **options)
        self._checkpoints = Forgets()

    monkeypatch.setattr(TorchCache, "__init__", start)
    with pytest.raises(UserError, match="bytes after request"):
        on_tiny(tiny, small_workload, "marconi", compare=range(60))


def test_a_wrong_backend_fails_the_command(monkeypatch: pytest.MonkeyPatch):
    from marconi_sim.validation import exact
    from marconi_sim.validation.mistakes import OneTokenOff

    monkeypatch.setattr(exact, "open_backend", lambda *a, **k: OneTokenOff(open_backend(*a, **k)))
    arguments = [
        "validate-exact",
        "--backend",
        "tiny",
        "--requests",
        "12",
        "--longest",
        "40",
        "--json",
    ]
    outcome = CliRunner().invoke(cli, arguments)
    assert outcome.exit_code == 1
    assert [row["verdict"] for row in orjson.loads(outcome.stdout)["backends"]] == ["NOT EXACT"]


def test_validate_exact_as_json():
    arguments = [
        "validate-exact",
        "--backend",
        "tiny",
        "--requests",
        "24",
        "--longest",
        "50",
        "--json",
    ]
    outcome = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0
    (row,) = orjson.loads(outcome.stdout)["backends"]
    assert row["passed"]
    assert row["backend"] == "tiny"
    assert row["branch_checkpoints"] > 0


# --- times ---


@pytest.fixture(scope="module")
def measurement():
    setting = prepare(
        "taubench", ("vanilla", "marconi"), requests=16, longest=120, capacity=None, backend="tiny", device="cpu",
        dtype="float32", threads=1, repeats=1, compare=4, seed=0,
    )  # fmt: skip
    return measure(setting)


def test_a_measurement_has_a_row_per_policy_and_request(measurement):
    rows = measurement.rows
    assert rows.groupby("policy").size().to_dict() == {"vanilla": 16, "marconi": 16}
    assert rows.logit_error.notna().sum() == 8
    assert rows.logit_error.max() < 0.1
    held = rows.groupby("request").held_out.nunique()
    assert (held == 1).all()  # the same prompts are held out under every policy
    fit = measurement.fits["ttft"]
    left = rows.flops_total - rows.flops_saved
    assert np.allclose(
        rows.predicted_ttft, fit.time.seconds_of(left, rows.restored_bytes.astype(float))
    )
    assert (rows.restore_seconds < rows.ttft).all()
    assert measurement.exact
    computing = rows[rows.flops_left > 0]  # not cached to its very end
    assert fit.held_out == computing.held_out.sum() >= 10
    assert fit.fitted == (~computing.held_out).sum() >= 10


def test_a_measurement_leaves_its_files(measurement, tmp_path: Path):
    folder = tmp_path / "out"
    measurement.write(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "profile.toml", "requests.parquet", "ttft.pdf", "ttft.png",
    ]  # fmt: skip
    profile = tomllib.loads((folder / "profile.toml").read_text())
    fit = measurement.fits["ttft"]
    assert profile["overhead_seconds"] == fit.time.overhead
    assert profile["seconds_per_flop"] == fit.time.per_flop
    assert profile["measured"]["hardware"] == "CPU, 1 thread"
    assert profile["measured"]["held_out_p95_error"] == fit.p95_error
    stored = pd.read_parquet(folder / "requests.parquet")
    assert stored.predicted_ttft.tolist() == measurement.rows.predicted_ttft.tolist()


def test_validate_ttft_prints_and_is_json(tmp_path: Path):
    arguments = [
        "validate-ttft", "--trace", "taubench", "--requests", "12", "--longest", "80", "--backend", "tiny",
        "--repeats", "1", "--policy", "sglang+",
    ]  # fmt: skip
    printed = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert printed.exit_code == 0
    assert "taubench[first 12 requests" in printed.stdout
    told = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    summary = orjson.loads(told.stdout)
    assert [row["policy"] for row in summary["policies"]] == ["sglang+"]
    assert set(summary["fits"]) == {"ttft", "ttft_cpu"}
    assert summary["dtype"] == "float64"


def test_validate_ttft_fails_on_wrong_logits(monkeypatch: pytest.MonkeyPatch):
    from marconi_sim.validation import measurement as module
    from marconi_sim.validation.mistakes import WrongPrefix

    monkeypatch.setattr(module, "open_backend", lambda *a, **k: WrongPrefix(open_backend(*a, **k)))
    arguments = [
        "validate-ttft", "--trace", "taubench", "--requests", "12", "--longest", "80", "--backend", "tiny",
        "--repeats", "1", "--policy", "sglang+", "--compare", "12",
    ]  # fmt: skip
    outcome = CliRunner().invoke(cli, arguments)
    assert isinstance(outcome.exception, UserError)
    assert "reuse is not exact" in str(outcome.exception)


def test_prompts_that_repeat_are_on_one_side():
    rows = pd.DataFrame({"request": range(6), "flops_total": 1.0, "flops_saved": 0.0})
    pooled = pool({"a": rows, "b": rows}, np.array([7, 3, 7, 5, 3, 9], np.int32))
    assert pooled.held_out.tolist() == [False, True, False, False, True, True] * 2


@pytest.mark.parametrize("command", ["validate-ttft", "validate-exact"])
def test_without_torch_the_extra_is_named(command: str):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['marconi-sim', {command!r}]\n"
        "from marconi_sim.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'marconi-sim[torch]'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--threads", "100000"]])
def test_numbers_out_of_range(arguments: list[str]):
    outcome = CliRunner().invoke(cli, ["validate-ttft", *arguments])
    assert outcome.exit_code == 2
    assert "is not in the range" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "smal"], "--backend smal: unknown; did you mean 'small'"),
        (["--backend", "./nothing.json"], "./nothing.json: "),
        (["--backend", "jamba"], "'jamba' is not supported"),
        (["--device", "cuda:7"], "device 'cuda:7'"),
        (["--device", "gpu"], "device 'gpu': unknown"),
        (["--dtype", "float31"], "dtype 'float31': unknown"),
        (["--policy", "marconi", "--policy", "marconi"], "one is given twice"),
        (["--policy", "vllm+"], "cannot be followed"),
        (["--requests", "2", "--backend", "tiny"], "--requests 2: too few to fit"),
        (["--capacity", "lots"], "capacity 'lots'"),
        (["--backend", "tiny", "--capacity", "900TB"], "free, at least 2700 TB"),
    ],
)
def test_mistakes_on_the_command_line(arguments: list[str], message: str):
    base = ["validate-ttft", "--trace", "taubench", "--longest", "40"]
    if "--requests" not in arguments:
        base += ["--requests", "8"]
    outcome = CliRunner().invoke(cli, [*base, *arguments])
    assert isinstance(outcome.exception, UserError), outcome.exception
    assert message in str(outcome.exception)
    assert "\n" not in str(outcome.exception)


def test_a_model_that_does_not_fit_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10**9)
    with pytest.raises(
        UserError, match=r"1 GB free, at least 24\.\d+ GB needed for 9\.78 G parameters in bfloat16"
    ):
        open_backend("bamba-9b")
    pytest.importorskip("transformers")
    from marconi_sim.adapters.families import tiny_config

    path = tmp_path / "config.json"
    path.write_bytes(orjson.dumps({**tiny_config("bamba"), "hidden_size": 8192, "intermediate_size": 40960,
                                   "mamba_n_heads": 256, "mamba_d_head": 64}))  # fmt: skip
    with pytest.raises(UserError, match=r"1 GB free, at least .* G parameters in float32"):
        open_backend(str(path))


def test_running_out_of_memory_is_one_line():
    with pytest.raises(UserError, match="device cpu: out of memory; use a smaller"), \
            memory.running_out_told(torch.device("cpu")):  # fmt: skip
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
    with (
        pytest.raises(RuntimeError, match="something else"),
        memory.running_out_told(torch.device("cpu")),
    ):
        raise RuntimeError("something else")
