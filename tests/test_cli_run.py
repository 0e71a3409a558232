"""`marconi-sim run`: what scripts rely on (DESIGN section 8), and what is said about mistakes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import naive
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import REPOSITORY, compiled

import marconi_sim as ms
from marconi_sim import cli
from marconi_sim.base import catalogue
from marconi_sim.trace.compiled.trace import save

POLICIES = tuple(catalogue.entries("policies"))
TRACES = tuple(catalogue.entries("traces"))
CAUSES = naive.CAUSES
ROWS = [
    {
        "session_id": session,
        "turn_id": turn,
        "ts": 10.0 * session + turn,
        "input_tokens": [1, 2, 3, *([session] * 20 * (turn + 1))],
        "output_tokens": [7, session],
    }
    for session in range(6)
    for turn in range(5)
]
IMPORT = "from marconi_sim.policy import RadixPolicy"
POLICY = '''"""A policy."""
from marconi_sim.policy import RadixPolicy, kernel


class Mine(RadixPolicy):
    """Mine."""

    @staticmethod
    @kernel
    def {hook}
        {body}
'''


class Said(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `marconi-sim run` in this process. An option given as None is left out."""

    def start(**options: Any) -> Said:
        given = {"trace": "taubench", "policy": "vllm+"} | options
        argv = ["marconi-sim", "run"]
        for name, value in given.items():
            for one in value if isinstance(value, list) else [value]:
                flag = "--" + name.replace("_", "-")
                argv += [] if one is None else [flag] if one is True else [flag, str(one)]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Said(ended.value.code, *capsys.readouterr())

    monkeypatch.delenv(catalogue.ENVIRONMENT_VARIABLE, raising=False)
    return start


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A small trace in the layout of the published code."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def fails(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Runs a command that must fail, leaving no file behind; returns its one line."""

    def start(status: int, **options: Any) -> str:
        before = sorted(tmp_path.rglob("*"))
        said = run(**options)
        assert said.err.startswith("error: "), said.err
        assert said.err.endswith("\n")
        assert said.err.count("\n") == 1, said.err
        assert said.out == ""
        assert said.status == status, said.err
        after = [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts]
        assert after == [path for path in before if "__pycache__" not in path.parts]
        return said.err

    return start


# --- the contract ---

TYPES = {
    "trace": str, "policy": str, "params": dict, "model": str, "accounting": str, "capacity_bytes": int,
    "requests": int, "input_tokens": int, "reused_tokens": int, "token_hit_rate": float,
    "request_hit_rate": float, "flops_total": float, "flops_saved": float, "peak_bytes": int,
    "evictions": int, "bypassed": int, "missed": dict, "seconds": float,
}  # fmt: skip
REQUEST_COLUMNS = [
    "request", "session", "turn", "arrival", "input_tokens", "output_tokens", "matched_tokens",
    "reused_tokens", "flops_total", "flops_saved", *CAUSES,
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_json_is_one_object_with_the_agreed_keys(run: Run, policy: str):
    said = run(policy=policy, json=True)
    assert said.status == 0
    assert said.err == ""
    found = json.loads(said.out)
    assert {key: type(found[key]) for key in TYPES} == TYPES
    assert found["trace"] == "taubench"
    assert found["policy"] == policy
    assert tuple(found["missed"]) == CAUSES
    assert found["reused_tokens"] + sum(found["missed"].values()) == found["input_tokens"]
    assert found["token_hit_rate"] == found["reused_tokens"] / found["input_tokens"]
    assert 0 <= found["flops_saved"] <= found["flops_total"]
    assert found["peak_bytes"] <= found["capacity_bytes"] or policy == "unbounded"
    assert set(found["bounds"]) == {"vanilla", "unbounded", "ceiling"} - {policy}


# What takes long to import, and what a plain run has no use for.
SLOW_IMPORTS = ("dask", "datasets", "distributed", "joblib", "matplotlib", "pandas", "rich")


def test_a_plain_run_imports_nothing_it_does_not_need():
    script = (
        "import sys\nfrom marconi_sim.cli import cli\n"
        "cli(['run', '--trace', 'taubench', '--policy', 'marconi', '--json'], standalone_mode=False)\n"
        f"sys.stderr.write(' '.join(m for m in {SLOW_IMPORTS} if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["trace"] == "taubench"


def test_requests_out(run: Run, tmp_path: Path):
    out = tmp_path / "requests.parquet"
    said = run(policy="sglang+", json=True, requests_out=out)
    summary, table = json.loads(said.out), pq.read_table(out)
    assert table.column_names == REQUEST_COLUMNS
    columns = {name: table[name].to_numpy() for name in table.column_names}
    assert columns["request"].tolist() == list(range(summary["requests"]))
    assert (np.diff(columns["arrival"]) >= 0).all()
    for total, column in {
        "input_tokens": "input_tokens",
        "reused_tokens": "reused_tokens",
        "flops_total": "flops_total",
        "flops_saved": "flops_saved",
    }.items():
        assert columns[column].sum() == pytest.approx(summary[total], rel=1e-12)
    assert {cause: columns[cause].sum() for cause in CAUSES} == summary["missed"]
    missed = sum(columns[cause] for cause in CAUSES)
    assert (columns["reused_tokens"] + missed == columns["input_tokens"]).all()
    assert (columns["reused_tokens"] <= columns["matched_tokens"]).all()
    assert (columns["output_tokens"] >= 0).all()


def test_requests_of_a_file_are_those_in_it(run: Run, log: Path, tmp_path: Path):
    out = tmp_path / "requests.parquet"
    assert run(trace=log, requests_out=out).status == 0
    table = pq.read_table(out, columns=["session", "turn", "arrival", "input_tokens"])
    assert table.to_pylist() == [
        {
            "session": row["session_id"],
            "turn": row["turn_id"],
            "arrival": row["ts"],
            "input_tokens": len(row["input_tokens"]),
        }
        for row in sorted(ROWS, key=lambda row: (row["ts"], row["session_id"], row["turn_id"]))
    ]


def test_out_is_one_row(run: Run, tmp_path: Path):
    out = tmp_path / "run.parquet"
    summary = json.loads(run(policy="sglang+", json=True, out=out).out)
    (row,) = pq.read_table(out).to_pylist()
    assert row["param_clock"] == "logical"
    assert {cause: row[f"missed_{cause}"] for cause in CAUSES} == summary["missed"]
    same = set(TYPES) - {"params", "missed", "seconds"}
    assert {key: row[key] for key in same} == {key: summary[key] for key in same}
    assert len(row["trace_sha256"]) == len(row["policy_sha256"]) == 64
    assert row["version"] == ms.__version__


def test_defaults_are_those_of_the_recipe(run: Run):
    found = json.loads(run(json=True).out)
    assert found["capacity_bytes"] == 10 * 10**9
    assert found["sessions"] == 200
    assert found["model"] == "hybrid-7b"
    assert found["accounting"] == "paper"
    assert (found["sessions_per_second"], found["response_time"], found["seed"]) == (1.0, 5.0, 42)
    assert found["synthetic"] is False


def test_the_recipe_names_parameters_of_a_policy_and_the_user_others(run: Run):
    def params(**options: Any) -> dict[str, Any]:
        return json.loads(run(trace="lmsys", policy="marconi", json=True, **options).out)["params"]

    assert params() == {"clock": "logical", "alpha": "bootstrap", "multiplier": 15}
    assert params(param=["multiplier=2", "alpha=0.5"])["multiplier"] == 2
    assert params(param=["alpha=0.5"])["alpha"] == 0.5


def test_options_reach_the_simulation(run: Run):
    found = json.loads(
        run(
            policy="vllm+",
            json=True,
            capacity="1.5GiB",
            model="ssm-light",
            sessions=7,
            sessions_per_second=0.5,
            response_time=3,
            seed=1,
            param=["block_size=64"],
        ).out
    )
    expected = {
        "capacity_bytes": 3 * 2**29,
        "model": "ssm-light",
        "sessions": 7,
        "sessions_per_second": 0.5,
        "response_time": 3.0,
        "seed": 1,
        "params": {"block_size": 64},
    }
    assert {key: found[key] for key in expected} == expected


def test_bare_file_has_the_default_capacity_and_says_when_arrivals_are_invented(
    run: Run, tmp_path: Path
):
    path = tmp_path / "log.jsonl"
    record = {"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}
    path.write_text(json.dumps(record) + "\n")
    assert json.loads(run(trace=path, json=True).out)["capacity_bytes"] == 60 * 10**9
    times = tmp_path / "times.parquet"
    save(compiled([naive.Request(0, 0, float("nan"), (1, 2), (3,))]), times)
    said = run(trace=times, json=True)
    assert said.err.startswith("notice: trace 'times' does not tell when its requests arrive")
    assert json.loads(said.out)["requests"] == 1


@pytest.mark.parametrize("policy", ["marconi", "vllm+"])
def test_same_bytes_twice(run: Run, tmp_path: Path, policy: str):
    for name in ("one", "two"):
        assert run(policy=policy, requests_out=tmp_path / name, sessions=50).status == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_other_seed_other_arrivals(run: Run, tmp_path: Path):
    for seed in (1, 2):
        assert run(requests_out=tmp_path / str(seed), seed=seed).status == 0
    arrivals = [pq.read_table(tmp_path / str(seed))["arrival"] for seed in (1, 2)]
    assert arrivals[0] != arrivals[1]


def test_tables_name_the_policy_and_every_cause_there_is(run: Run):
    said = run(policy="sglang+", capacity="2GB")
    assert said.status == 0
    for word in ("taubench", "sglang+", "vanilla", "unbounded", "ceiling", "reused", "cold"):
        assert word in said.out


def test_check_changes_nothing(run: Run):
    def summary(**options: Any) -> dict[str, Any]:
        found = json.loads(
            run(policy="sglang+", sessions=40, capacity="1GB", json=True, **options).out
        )
        del found["seconds"]
        return found

    assert summary(check=True) == summary()


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("trace", TRACES)
def test_every_shipped_trace_and_policy_passes_the_check(
    run: Run, tmp_path: Path, trace: str, policy: str
):
    out = tmp_path / "requests.parquet"
    assert run(trace=trace, policy=policy, check=True, requests_out=out).status == 0
    columns = {
        name: column.to_numpy()
        for name, column in zip(REQUEST_COLUMNS, pq.read_table(out), strict=True)
    }
    missed = sum(columns[cause] for cause in CAUSES)
    assert (columns["reused_tokens"] + missed == columns["input_tokens"]).all()


# --- capacities below what is useful ---


@pytest.mark.parametrize("policy", ["sglang+", "marconi"])
def test_capacity_below_one_sequence_warns_once_with_what_is_needed(
    run: Run, log: Path, policy: str
):
    said = run(trace=log, policy=policy, capacity="20MB", json=True)
    assert said.status == 0
    assert said.err.count("\n") == 1
    assert said.err.startswith(
        "warning: capacity 20 MB is below one sequence: nothing can be cached"
    )
    shortest, longest = 65_536 * 25 + 26_787_840, 65_536 * 105 + 26_787_840
    assert f"{shortest / 1e6:.4g} MB" in said.err
    assert f"{longest / 1e6:.4g} MB" in said.err
    found = json.loads(said.out)
    assert found["bypassed"] == found["requests"] == len(ROWS)
    assert found["reused_tokens"] == 0


def test_capacity_below_one_block_warns(run: Run, log: Path):
    said = run(trace=log, policy="vllm+", capacity="20MB", json=True)
    assert said.status == 0
    assert said.err.count("\n") == 1
    assert said.err.startswith("warning: capacity 20 MB is below one block: nothing can be cached")
    assert f"{(65_536 * 32 + 26_787_840) / 1e6:.4g} MB" in said.err
    assert json.loads(said.out)["reused_tokens"] == 0


def test_bounds_do_not_warn_about_a_capacity_they_ignore(run: Run, log: Path):
    for policy in ("vanilla", "unbounded", "ceiling"):
        assert run(trace=log, policy=policy, capacity="1B", json=True).err == ""


# --- mistakes in options ---


@pytest.mark.parametrize(
    "capacity",
    [
        "12XB",
        "0",
        "0GB",
        "-5GB",
        "",
        "GB",
        "1.5.5GB",
        "1e3",
        "nan",
        "0.4",
        "99999999999TB",
        "60 G B",
    ],
)
def test_capacity_that_is_none(fails: Callable[..., str], capacity: str):
    line = fails(2, capacity=capacity)
    assert f"capacity '{capacity}'" in line
    assert "e.g. 60GB" in line


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("policy", "marconni", "marconi"),
        ("trace", "swebenhc", "swebench"),
        ("model", "hybrid7b", "hybrid-7b"),
        ("param", "blok_size=4", "block_size"),
    ],
)
def test_misspelt_names_get_a_hint(fails: Callable[..., str], option: str, value: str, meant: str):
    line = fails(2, **{option: value})
    assert f"'{value.split('=')[0]}'" in line
    assert f"did you mean '{meant}'?" in line


@pytest.mark.parametrize(
    ("policy", "param", "allowed"),
    [
        ("vllm+", "block_size=0", "a whole number from 1 to"),
        ("vllm+", "block_size=2.5", "a whole number from 1 to"),
        ("vllm+", "block_size=many", "a whole number from 1 to"),
        ("vllm+", "alpha=0.5", "unknown to policy 'vllm+'"),
        ("marconi", "alpha=-1", "a number from 0 up or 'bootstrap'"),
        ("marconi", "alpha=nan", "a number from 0 up or 'bootstrap'"),
        ("marconi", "alpha=inf", "a number from 0 up or 'bootstrap'"),
        ("marconi", "alpha=bootstraps", "a number from 0 up or 'bootstrap'"),
        ("marconi", "multiplier=0", "a whole number from 1 up"),
        ("marconi", "multiplier=1.5", "a whole number from 1 up"),
        ("sglang+", "clock=noon", "'logical' or 'seconds'"),
        ("sglang+", "clock=1", "'logical' or 'seconds'"),
        ("vanilla", "alpha=1", "known: none"),
        ("marconi", "alpha", "NAME=VALUE"),
        ("marconi", "alpha=", "NAME=VALUE"),
        ("marconi", "=1", "NAME=VALUE"),
    ],
)
def test_parameters_that_are_not_allowed(
    fails: Callable[..., str], policy: str, param: str, allowed: str
):
    line = fails(2, policy=policy, param=param)
    assert param.split("=")[0] in line
    assert allowed in line


def test_options_of_the_model(run: Run, fails: Callable[..., str]):
    found = json.loads(
        run(json=True, model="qwen3.5-4b", model_option=["kv_dtype=fp8", "tensor_parallel=2"]).out
    )
    assert found["model"] == "qwen3.5-4b[kv_dtype=fp8, tensor_parallel=2]"
    assert found["accounting"] == "exact"
    assert "known: bfloat16" in fails(2, model="qwen3.5-4b", model_option=["kv_dtype=int4"])
    assert "write it as NAME=VALUE" in fails(2, model="qwen3.5-4b", model_option=["fp8"])
    assert "given twice" in fails(
        2, model="hybrid-7b", model_option=["ssm_layers=1", "ssm_layers=2"]
    )
    assert "unknown key 'kv_dtype'" in fails(2, model="hybrid-7b", model_option=["kv_dtype=fp8"])
    line = fails(2, model="qwen3.5-4b", policy="marconi", rules="artifact")
    assert "its accounting is 'exact'" in line


def test_parameter_given_twice(fails: Callable[..., str]):
    assert "given twice" in fails(2, policy="marconi", param=["alpha=1", "alpha=2"])


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("sessions", 0, "give 1 to 200"),
        ("sessions", -3, "give 1 to 200"),
        ("sessions", 201, "give 1 to 200"),
        ("sessions", "all", "not a valid integer"),
        ("sessions", 1.5, "not a valid integer"),
        ("sessions_per_second", 0, "a number from"),
        ("sessions_per_second", -1, "a number from"),
        ("sessions_per_second", "nan", "a number from"),
        ("sessions_per_second", "inf", "a number from"),
        ("sessions_per_second", "fast", "not a valid float"),
        ("response_time", -5, "a number from 0"),
        ("response_time", "nan", "a number from 0"),
        ("seed", -1, "from 0 to 2^63-1"),
        ("seed", 0.5, "not a valid integer"),
        ("trace", None, "Missing option '--trace'"),
        ("policy", None, "Missing option '--policy'"),
        ("polcy", "marconi", "No such option"),
    ],
)
def test_options_out_of_range(fails: Callable[..., str], option: str, value: Any, allowed: str):
    line = fails(2, **{option: value})
    assert allowed in line
    assert option.replace("_", "-") in line.replace("_", "-")


# --- mistakes about files to write ---


@pytest.mark.parametrize("option", ["out", "requests_out"])
@pytest.mark.parametrize(
    ("target", "reason"),
    [("missing/x.parquet", "does not exist"), (".", "is a directory"), ("log.jsonl/x", "exist")],
)
def test_files_that_cannot_be_written_are_found_before_any_work(
    fails: Callable[..., str],
    log: Path,
    option: str,
    target: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(
        "marconi_sim.trace.load.load_trace", lambda *_args, **_options: pytest.fail("work was done")
    )
    assert reason in fails(1, trace=log, **{option: log.parent / target})


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"trace": ""}, 2, "trace '': is empty; give a name, see 'marconi-sim list traces'"),
        ({"trace": "."}, 2, "error: .: is a directory that looks like none of the known"),
        ({"trace": ".."}, 2, "error: ..: is a directory"),
        ({"policy": ""}, 2, "policy '': is empty"),
        ({"policy": "."}, 1, "error: .: is a directory, expected a file (policy)"),
        ({"catalogue": ""}, 2, "catalogue folder '': is empty"),
    ],
)
def test_names_that_are_empty_or_a_directory(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str], status: int, said: str,
):  # fmt: skip
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert said in fails(status, **options)


@pytest.mark.parametrize("option", ["out", "requests_out"])
@pytest.mark.parametrize("name", ["x.csv", "x.JSON", "x.jsonl.gz", "x.xlsx", "x.feather"])
def test_a_table_under_the_name_of_another_format(
    fails: Callable[..., str], tmp_path: Path, option: str, name: str
):
    line = fails(2, **{option: tmp_path / name})
    assert f"{name}: a table is written as Parquet" in line


def test_a_tables_name_may_have_any_ending_that_means_nothing(run: Run, tmp_path: Path):
    for name in ("x", "x.parquet", "x.v2", ".csv"):
        assert run(policy="vanilla", out=tmp_path / name).status == 0
        assert pq.read_table(tmp_path / name).num_rows == 1


def test_folder_without_permission(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.access", lambda *_args: False)  # root may write anywhere
    assert "no permission" in fails(1, out=tmp_path / "x.parquet")


def test_two_outputs_in_one_file(fails: Callable[..., str], tmp_path: Path):
    line = fails(2, out=tmp_path / "x.parquet", requests_out=tmp_path / "." / "x.parquet")
    assert "--out and --requests-out" in line


@pytest.mark.parametrize("option", ["out", "requests_out"])
def test_output_over_the_trace(fails: Callable[..., str], log: Path, option: str):
    assert "is the trace itself" in fails(2, trace=log, **{option: log.parent / "." / log.name})
    assert len(log.read_text().splitlines()) == len(ROWS)


def test_disk_full_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(table: pa.Table, where: Path, **_options: Any) -> None:
        Path(where).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    said = run(out=tmp_path / "x.parquet")
    assert said.status == 1
    assert said.err.endswith("x.parquet: cannot be written (No space left on device)\n")
    assert list(tmp_path.iterdir()) == []


# --- mistakes about traces ---


def whole_gz() -> bytes:
    return gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode())


@pytest.mark.parametrize(
    ("name", "content", "status", "said"),
    [
        ("empty.jsonl", b"", 1, "empty or damaged"),
        ("empty.jsonl.gz", gzip.compress(b"", mtime=0), 1, "empty or damaged"),
        ("blank.jsonl", b"\n\n", 1, "empty or damaged"),
        ("text.jsonl", b"hello\n", 2, "none of the known formats"),
        ("binary.jsonl", bytes(range(256)), 2, "none of the known formats"),
        ("half.jsonl.gz", whole_gz()[:-40], 1, "half.jsonl.gz"),
        ("notgz.jsonl.gz", b"plain text", 2, "none of the known formats"),
        (
            "half.jsonl",
            json.dumps(ROWS[0]).encode() + b'\n{"session_id": 0, "turn',
            1,
            "half.jsonl:2",
        ),
        (
            "keys.jsonl",
            b'{"session_id": 0, "turn_id": 0, "input_tokens": [1]}\n',
            1,
            "keys.jsonl:1",
        ),
        ("words.jsonl", json.dumps(ROWS[0] | {"input_tokens": ["a"]}).encode(), 1, "words.jsonl:1"),
        (
            "noinput.jsonl",
            json.dumps(ROWS[0] | {"input_tokens": []}).encode(),
            1,
            "noinput.jsonl:1",
        ),
        ("late.jsonl", json.dumps(ROWS[0] | {"ts": "noon"}).encode(), 1, "late.jsonl:1"),
        ("empty.parquet", b"", 1, "empty.parquet"),
        ("text.parquet", b"hello", 1, "text.parquet"),
        ("recipe.toml", b"title = ", 1, "recipe.toml"),
        ("other.toml", b"[project]\n", 1, "other.toml"),
    ],
)
def test_files_that_are_no_trace(
    fails: Callable[..., str], tmp_path: Path, name: str, content: bytes, status: int, said: str
):
    path = tmp_path / name
    path.write_bytes(content)
    line = fails(status, trace=path)
    assert name in line
    assert said in line


def test_directory_as_a_trace(fails: Callable[..., str], tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert str(folder) in fails(2, trace=folder)


@pytest.mark.parametrize("trace", ["./absent.jsonl", "/absent/absent.parquet"])
def test_absent_file(fails: Callable[..., str], trace: str):
    assert "no such file" in fails(2, trace=trace)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.parquet"
    save(
        compiled([naive.Request(0, i, float(i), (1, 2, 3) * (i + 1), (4, i)) for i in range(9)]),
        path,
    )
    return path


def test_a_compiled_trace_runs(run: Run, good: Path):
    assert json.loads(run(trace=good, json=True).out)["requests"] == 9


def test_truncated_compiled_trace(fails: Callable[..., str], good: Path):
    content = good.read_bytes()
    good.write_bytes(content[: len(content) // 2])
    assert "corrupted" in fails(1, trace=good)


def test_flipped_byte_in_a_compiled_trace(run: Run, good: Path):
    content = bytearray(good.read_bytes())
    undetected = 0
    for position in range(8, len(content) - 8, 37):
        good.write_bytes(
            bytes(content[:position])
            + bytes([content[position] ^ 0xFF])
            + bytes(content[position + 1 :])
        )
        said = run(trace=good, json=True)
        assert "Traceback" not in said.err
        if said.status == 0:  # a byte of the metadata that nothing depends on
            undetected += 1
            continue
        assert said.status == 1
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
    assert undetected < len(content) / 37 / 2


def header_changed(path: Path, **changes: Any) -> None:
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"marconi_sim"]) | changes
    pq.write_table(
        table.replace_schema_metadata({b"marconi_sim": json.dumps(header)}), path, row_group_size=9
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 99}, "format version 99"),
        ({"version": "two"}, "format version two"),
        ({"format": "something else"}, "not a compiled trace"),
        ({"sha256": "0" * 64}, "does not match its hash"),
        ({"requests": 8}, "corrupted"),
    ],
)
def test_compiled_traces_of_other_makers(
    fails: Callable[..., str], good: Path, changes: dict[str, Any], said: str
):
    header_changed(good, **changes)
    assert said in fails(1, trace=good)


def test_parquet_file_that_is_no_trace(fails: Callable[..., str], tmp_path: Path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    assert "not a compiled trace" in fails(1, trace=path)


# --- mistakes in models ---


@pytest.mark.parametrize("text", ["", "title = 1", "not toml", "\0"])
def test_model_files_that_are_none(fails: Callable[..., str], tmp_path: Path, text: str):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert str(path) in fails(1, model=path)


def test_absent_model_file(fails: Callable[..., str], tmp_path: Path):
    assert "no such file" in fails(1, model=tmp_path / "absent.toml")


# --- mistakes in policies ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "defines 0 policies"),
        (f"{IMPORT}\nclass A(RadixPolicy): ...\nclass B(RadixPolicy): ...", "defines 2 policies"),
        (IMPORT, "defines 0 policies"),
        ("x = 1\nclass (", "mine.py:2"),
        ("x = 1\nimport absent_module", "mine.py:2"),
        ("x = 1\n\nraise ValueError('no\\nway')", "mine.py:3"),
        ("import sys\nsys.exit(3)", "mine.py:2"),
        (f"{IMPORT}\nclass A(RadixPolicy):\n    evicts = 'leafs'", "evicts"),
        (f"{IMPORT}\nclass A(RadixPolicy):\n    admits = ('middle',)", "admits"),
        (f"{IMPORT}\nclass A(RadixPolicy):\n    touches = 'all'", "touches"),
        ("\0", "mine.py"),
    ],
)  # fmt: skip
def test_policy_files_that_are_none(
    fails: Callable[..., str], tmp_path: Path, text: str, said: str
):
    path = tmp_path / "mine.py"
    path.write_text(text)
    line = fails(1, policy=path)
    assert str(path) in line
    assert said in line


def test_policy_file_that_is_not_text(fails: Callable[..., str], tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_bytes(b"\xff\xfe\x00")
    assert str(path) in fails(1, policy=path)


def test_policy_file_of_another_kind(fails: Callable[..., str], tmp_path: Path):
    path = tmp_path / "mine.txt"
    path.write_text("")
    assert "must end in .py" in fails(1, policy=path)


def test_directory_as_a_policy(fails: Callable[..., str], tmp_path: Path):
    assert "is a directory" in fails(1, policy=f"{tmp_path}/")


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("hook", "body", "said"),
    [
        ("value(entry, params):", "return {'a': entry}['a'].depth + 'x'", "cannot be compiled"),
        ("value(entry, params):", "return entry.dept", "cannot be compiled"),
        ("value(entry, params):", "return params.alpha", "cannot be compiled"),
        ("value(entry):", "return 1.0", "cannot be compiled"),
        ("value(entry, params):", "return 'a lot'", "cannot be compiled"),
        ("value(entry, params):", "return float('nan')", "not finite"),
        ("value(entry, params):", "return 1e308 * 10 * entry.depth", "not finite"),
        (
            "value(entry, params):",
            "return entry.depth / (entry.depth - entry.depth)",
            "division by zero",
        ),
        ("score(recency, value, params):", "return float('nan')", ""),
        ("score(recency, value, params):", "return params.alpha * recency", ""),
        ("score(recency, value, params):", "return recency * value + recency", "weighted sum"),
        ("score(recency, value, params):", "return -recency", "recency"),
        ("score(recency, value):", "return recency", ""),
    ],
)
def test_hooks_that_do_not_work(
    fails: Callable[..., str], tmp_path: Path, log: Path, hook: str, body: str, said: str
):
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format(hook=hook, body=body))
    line = fails(1, trace=log, policy=path, capacity="80MB")
    assert "policy 'mine'" in line
    assert hook.split("(")[0] in line
    assert said in line


LOUD = '''"""A policy that talks."""
from marconi_sim.policy import RadixPolicy, kernel

print("loaded")


class Loud(RadixPolicy):
    """Talks."""

    def __init__(self, **params):
        print("made")
        super().__init__(**params)

    @staticmethod
    @kernel
    def value(entry, params):
        print("valued")
        return 0.0
'''


@pytest.mark.parametrize("as_json", [True, None])
def test_what_a_policy_prints_goes_to_stderr(
    run: Run, tmp_path: Path, log: Path, as_json: bool | None
):
    path = tmp_path / "loud.py"
    path.write_text(f"{LOUD}# {as_json}")  # a file is loaded once, and known by its content
    said = run(trace=log, policy=path, capacity="80MB", json=as_json)
    assert said.status == 0, said.err
    assert {"loaded", "made", "valued"} <= set(said.err.split())
    assert not {"loaded", "made", "valued"} & set(said.out.split())
    if as_json:
        assert json.loads(said.out)["policy"] == "loud"


# --- as a process ---


def process(*args: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "marconi_sim", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_exit_status_and_streams_of_a_process():
    good = process("run", "--trace", "taubench", "--policy", "vllm+", "--sessions", "5", "--json")
    assert good.returncode == 0
    assert good.stderr == ""
    assert json.loads(good.stdout)["sessions"] == 5
    bad = process("run", "--trace", "taubench", "--policy", "vllm+", "--capacity", "12XB")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: capacity '12XB'")
    assert process("rum").returncode == 2
    assert process().returncode == 2


def test_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m marconi_sim run --trace taubench --policy vllm+ | head -n 1"
    done = subprocess.run(
        command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("taubench")
