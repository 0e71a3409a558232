"""`marconi-sim list` and `marconi-sim show`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import REPOSITORY

from marconi_sim import cli
from marconi_sim.base import catalogue
from marconi_sim.model import ACCOUNTINGS, models
from marconi_sim.policy.load import load_policy
from marconi_sim.trace.importing.formats import formats

Run = Callable[..., tuple[int, str, str]]
EXPECTED = {
    "traces": set(catalogue.entries("traces")),
    "policies": set(catalogue.entries("policies")),
    "models": set(models()),
    "formats": set(formats()),
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; returns exit status, stdout and stderr."""

    def start(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["marconi-sim", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    monkeypatch.delenv(catalogue.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return start


def test_everything_is_listed(run: Run):
    status, out, err = run("list")
    assert (status, err) == (0, "")
    words = {line.split()[0] for line in out.splitlines() if line.strip()}
    for kind, names in EXPECTED.items():
        assert names | {kind} <= words


@pytest.mark.parametrize("kind", EXPECTED)
def test_one_kind_as_json(run: Run, kind: str):
    status, out, err = run("list", kind, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {kind}
    assert {row["name"] for row in found[kind]} == EXPECTED[kind]
    for row in found[kind]:
        assert row["what"]
        assert row["file"] is None or Path(row["file"]).is_file()


def test_synthetic_traces_are_labelled(run: Run):
    rows = {
        row["name"]: row["what"] for row in json.loads(run("list", "traces", "--json")[1])["traces"]
    }
    assert "SYNTHETIC" in rows["lmsys"]
    assert "SYNTHETIC" not in rows["swebench"]


def test_a_folder_of_ones_own_is_listed_too(run: Run, tmp_path: Path):
    (tmp_path / "policies").mkdir()
    shutil.copy(REPOSITORY / "docs" / "examples" / "gdsf.py", tmp_path / "policies" / "mine.py")
    (tmp_path / "traces").mkdir()
    shutil.copy(
        REPOSITORY / "traces" / "data" / "taubench.parquet", tmp_path / "traces" / "bare.parquet"
    )
    found = json.loads(run("list", "--json", "--catalogue", tmp_path)[1])
    policies = {row["name"]: row for row in found["policies"]}
    assert set(policies) == EXPECTED["policies"] | {"mine"}
    assert policies["mine"]["file"] == str(tmp_path / "policies" / "mine.py")
    assert policies["mine"]["what"].startswith("Evicts the entry that saves the fewest FLOPs")
    traces = {row["name"]: row["what"] for row in found["traces"]}
    assert traces["bare"] == "compiled trace without a recipe"
    assert run("show", "policy", "mine", "--catalogue", tmp_path)[0] == 0


@pytest.mark.parametrize("name", sorted(EXPECTED["policies"]))
def test_policy_is_shown(run: Run, name: str):
    status, out, err = run("show", "policy", name)
    assert (status, err) == (0, "")
    policy = load_policy(name)
    assert out.startswith(policy.summary())
    text = " ".join(out.split())
    for key, parameter in policy.parameters().items():
        assert f"{key}={parameter.default}" in text
    facts = json.loads(run("show", "policy", name, "--json")[1])
    assert facts["name"] == name
    assert facts["rules"] == policy.rules()
    assert set(facts["parameters"]) == set(policy.parameters())
    for key, parameter in policy.parameters().items():
        assert facts["parameters"][key]["default"] == parameter.default
        assert facts["parameters"][key]["allowed"] == parameter.allowed


@pytest.mark.parametrize("name", sorted(EXPECTED["models"]))
def test_model_is_shown(run: Run, name: str):
    status, out, err = run("show", "model", name)
    assert (status, err) == (0, "")
    assert "FLOPs of a prefill" in out
    assert "512,000" in out
    facts = json.loads(run("show", "model", name, "--json")[1])
    assert facts["name"] == name
    assert facts["tokens_per_state"] == facts["state_bytes"] / facts["kv_bytes_per_token"]
    assert set(facts["flops"]) == {"1000", "8000", "64000", "512000"}
    assert facts["accounting"] in ACCOUNTINGS
    assert ("blocks of" in out) == (facts["accounting"] == "exact") == ("layers" in facts)
    assert ("unverified" in out) == bool(facts.get("unverified"))


def test_the_papers_numbers(run: Run):
    out = run("show", "model", "hybrid-7b")[1]
    assert "65.54 KB (65,536 bytes)" in out
    assert "26.79 MB (26,787,840 bytes) = KV of 409 tokens" in out


def test_model_without_attention_is_shown(run: Run, tmp_path: Path):
    text = (REPOSITORY / "marconi_sim" / "model" / "shapes" / "hybrid-7b.toml").read_text()
    path = tmp_path / "pure.toml"
    path.write_text(text.replace("attention_layers = 4", "attention_layers = 0"))
    assert run("show", "model", path)[0] == 0
    facts = json.loads(run("show", "model", path, "--json")[1])
    assert facts["kv_bytes_per_token"] == 0
    assert facts["tokens_per_state"] is None


def test_an_exact_model_with_options(run: Run):
    options = ["--model-option", "kv_dtype=fp8", "--model-option", "draft_tokens=3"]
    out = " ".join(run("show", "model", "qwen3.5-27b", *options)[1].split())
    assert "kv_dtype=fp8" in out
    assert "32.77 KB (32,768 bytes); 2.048 KB in each of 16 layers" in out
    assert "blocks of 1,600 tokens" in out
    assert "1 + 3 groups" in out
    facts = json.loads(run("show", "model", "qwen3.5-27b", *options, "--json")[1])
    assert facts["vllm_block_tokens"] == 1600
    assert facts["vllm_groups"] == {"attention": 1, "recurrent": 3}
    assert facts["options"]["draft_tokens"] == 3


def test_a_list_says_what_a_state_costs(run: Run):
    rows = {row["name"]: row for row in json.loads(run("list", "models", "--json")[1])["models"]}
    assert round(rows["nemotron-h-47b"]["tokens_per_state"]) == 37134
    assert rows["llama-3.1-8b"]["tokens_per_state"] == 0
    assert "partly unverified" in rows["kimi-k3"]["what"]
    assert "unverified" not in rows["qwen3.5-9b"]["what"]
    (line,) = (x for x in run("list", "models")[1].splitlines() if "nemotron-h-47b" in x)
    assert line.split()[1] == "37,134"


def test_a_config_is_shown(run: Run, tmp_path: Path):
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96,
    }  # fmt: skip
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    status, out, err = run("show", "model", path)
    assert (status, err) == (0, "")
    assert out.startswith("tiny, a llama model")
    assert "3 layers, query heads 4, kv heads 2, head dim 16" in out
    assert "names no dtype: bfloat16 is assumed" in " ".join(out.split())
    path.write_text(json.dumps({**config, "model_type": "gpt_9"}))
    status, out, err = run("show", "model", path)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {path}: model_type 'gpt_9': unknown")


def test_trace_is_shown(run: Run):
    status, out, _ = run("show", "trace", "taubench", "--json")
    assert status == 0
    assert json.loads(out)
    assert "taubench" in run("show", "trace", "taubench")[1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["list", "policy"], "is not one of"),
        (["list", "--catalogue", "/absent"], "no such folder"),
        (["show", "polcy", "x"], "No such command 'polcy'"),
        (["show", "policy"], "Missing argument 'NAME'"),
        (["show", "policy", "marconni"], "did you mean 'marconi'?"),
        (["show", "model", "hybrid"], "did you mean 'hybrid-7b'?"),
        (["show", "model", "qwen3.5-4b", "--model-option", "kv_dtype"], "write it as NAME=VALUE"),
        (["show", "model", "qwen3.5-4b", "--model-option", "kv_dtype=int4"], "known: bfloat16"),
        (
            ["show", "model", "hybrid-7b", "--model-option", "kv_dtype=fp8"],
            "unknown key 'kv_dtype'",
        ),
        (["show", "trace", "taubenhc"], "did you mean 'taubench'?"),
        (["lst"], "No such command 'lst'"),
        (["--verbose"], "No such option"),
    ],
)
def test_mistakes(run: Run, args: list[str], said: str):
    status, out, err = run(*args)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize("command", [[], ["show"], ["trace"]])
def test_a_command_without_its_command_prints_help_on_stderr(run: Run, command: list[str]):
    status, out, err = run(*command)
    assert (status, out) == (2, "")
    assert err == run(*command, "--help")[1]


def test_files_of_ones_own_that_cannot_be_read_are_named_and_the_rest_is_listed(
    run: Run, tmp_path: Path
):
    bad = {
        "policies/broken.py": "import nothing_like_it",
        "traces/broken.toml": "title = 3",
        "traces/torn.toml": "title =",
        "experiments/broken.toml": "titel = 'x'",
    }
    for name, text in bad.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(REPOSITORY / "docs" / "examples" / "gdsf.py", tmp_path / "policies" / "mine.py")
    status, out, err = run("list", "--json", "--catalogue", tmp_path)
    assert status == 1
    found = json.loads(out)
    for kind, names in EXPECTED.items():
        assert {row["name"] for row in found[kind]} == names | (
            {"mine"} if kind == "policies" else set()
        )
    lines = err.splitlines()
    assert len(lines) == len(bad)
    for name in bad:
        assert sum(line.startswith(f"error: {tmp_path / name}:") for line in lines) == 1
    status, out, err = run("list", "policies", "--catalogue", tmp_path)
    assert status == 1
    assert "vllm+" in out
    assert err.startswith(f"error: {tmp_path / 'policies' / 'broken.py'}:1: the policy cannot be")
    assert err.count("\n") == 1


def test_what_a_policy_prints_goes_to_stderr(run: Run, tmp_path: Path):
    (tmp_path / "policies").mkdir()
    text = (REPOSITORY / "policies" / "vllm+.py").read_text()
    said = """
    @classmethod
    def rules(cls):
        print("ruled")
        return super().rules()

print("loaded")
"""
    (tmp_path / "policies" / "loud.py").write_text(text + said)
    status, out, err = run("list", "policies", "--catalogue", tmp_path, "--json")
    assert (status, err) == (0, "loaded\n")
    assert "loud" in {row["name"] for row in json.loads(out)["policies"]}
    status, out, err = run("show", "policy", "loud", "--catalogue", tmp_path, "--json")
    assert (status, err) == (0, "ruled\n")
    assert json.loads(out)["name"] == "loud"


@pytest.mark.parametrize(
    "command", [[], ["run"], ["list"], ["show"], ["show", "policy"], ["show", "model"], ["trace"]]
)
def test_every_command_has_help(run: Run, command: list[str]):
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith("Usage: marconi-sim")
    assert len(out.splitlines()) > 5
