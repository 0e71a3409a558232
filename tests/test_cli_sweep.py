"""`marconi-sim sweep`: what it prints and writes, and what it says about mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.cli.catalogue import list_command, show_command
from marconi_sim.cli.sweep import sweep_command
from marconi_sim.sweeps.sweep import sweep

TEXT = """title = "Small"
description = "For tests."
requests = true
[[traces]]
trace = "lmsys"
sessions = 10
capacity = ["1GB", "2GB"]
[[policies]]
policy = "sglang+"
[[policies]]
policy = "marconi"
label = "static"
best = "best"
params.alpha = [0.0, 1.0]
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sweep_command, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


def test_it_writes_beside_where_it_is_called_and_prints_rates_by_policy(
    file: Path, tmp_path: Path
) -> None:
    result = run(file, "-j", "1")
    assert result.exit_code == 0
    assert "lmsys SYNTHETIC" in result.stdout
    for label in ("sglang+", "static", "best"):
        assert label in result.stdout
    assert "6 runs in" in result.stdout
    assert pq.read_table(tmp_path / "small.parquet").num_rows == 8
    assert len(list((tmp_path / "small.requests").iterdir())) == 6
    again = run(file, "-j", "1")
    assert "0 runs in" in again.stdout
    assert "6 were finished before" in again.stdout


def test_json_prints_one_object(file: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "o.parquet", tmp_path / "r"
    result = run(file, "--out", out, "--requests-dir", folder, "-j", "1", "--json")
    told = json.loads(result.stdout)
    assert told["out"] == str(out)
    assert told["requests_dir"] == str(folder)
    assert (told["runs"], told["rows"], told["ran"], told["finished_before"]) == (6, 8, 6, 0)


def test_what_a_policy_prints_in_a_worker_goes_to_stderr_too(file: Path, tmp_path: Path) -> None:
    own = Path(catalogue.shipped() / "policies" / "vllm+.py").read_text()
    (tmp_path / "loud.py").write_text(f"{own}\nprint('loaded')\n")
    file.write_text(
        TEXT.replace('"sglang+"', '"./loud.py"').replace("requests = true", "requests = false")
    )
    command = [sys.executable, "-m", "marconi_sim", "sweep", str(file), "-j", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ran"] == 6
    assert "loaded" in done.stderr


def test_a_dry_run_prints_what_would_run_and_runs_nothing(file: Path, tmp_path: Path) -> None:
    result = run(file, "--dry-run")
    assert "2 configurations, 6 runs, 0 of them finished; would write small.parquet" in result.stdout  # fmt: skip
    assert "alpha 0.0, 1.0" in result.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["small.toml"]
    run(file, "-j", "1")
    told = json.loads(run(file, "--dry-run", "--json").stdout)
    assert (told["runs"], told["finished"], len(told["rows"])) == (6, 6, 6)
    assert told["rows"][1]["param_alpha"] == 0.0
    fresh = json.loads(run(file, "--dry-run", "--json", "--no-resume").stdout)
    assert fresh["finished"] == 0


def test_a_shipped_experiment_by_name(file: Path) -> None:
    result = run("fig07", "--dry-run")
    assert "138 configurations, 414 runs" in result.stdout
    listed = CliRunner().invoke(list_command, ["experiments"])
    assert "fig07" in listed.stdout
    shown = CliRunner().invoke(show_command, ["experiment", "fig07"], catch_exceptions=False)
    assert shown.stdout == result.stdout


def test_a_users_folder_of_experiments(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "experiments").mkdir(parents=True)
    file.rename(folder / "experiments" / "own.toml")
    assert "would write own.parquet" in run("own", "--catalogue", folder, "--dry-run").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "dask"], "--backend dask: give the cluster's address too"),
        (["--scheduler", "tcp://x:1"], "--scheduler tcp://x:1: has no effect without"),
        (["--backend", "dask", "--scheduler", "x:1", "-j", "2"], "--jobs 2: has no effect with"),
    ],
)
def test_options_that_do_not_go_together(file: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(file, *arguments)


def test_a_place_that_cannot_be_written_is_told_before_anything_runs(
    file: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="does not exist"):
        run(file, "--out", tmp_path / "absent" / "o.parquet")
    for more in ([], ["--dry-run"]):
        with pytest.raises(UsageError, match=r"o\.csv: a table is written as Parquet"):
            run(file, "--out", "o.csv", *more)
    with pytest.raises(UsageError, match=r"o\.csv: a table is written as Parquet"):
        sweep(file, out="o.csv")
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="is a file, expected a folder"):
        run(file, "--requests-dir", tmp_path / "taken")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.toml", "taken"]


def test_a_bad_experiment_file_is_one_line_with_file_key_and_line(file: Path) -> None:
    file.write_text(TEXT.replace("sessions = 10", "sesions = 10"))
    done = subprocess.run(
        [sys.executable, "-m", "marconi_sim", "sweep", "./small.toml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: small.toml:6: unknown key 'sesions' in [traces]; did you mean 'sessions'? known:"
        " capacity, response_time, seed, sessions, sessions_per_second, trace\n"
    )


def test_the_command_starts_without_heavy_imports() -> None:
    code = (
        "import sys; import marconi_sim.cli.sweep;"
        "print({'numba', 'numpy', 'pandas', 'pyarrow', 'joblib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
