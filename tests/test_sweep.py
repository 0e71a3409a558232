"""Sweeps: the same file whatever runs them and however often they are interrupted."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import marconi_sim as ms
from marconi_sim.base.columns import METRICS
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.radix.replay import replay_radix
from marconi_sim.sweeps import run as sweeping
from marconi_sim.sweeps.experiment import load_experiment
from marconi_sim.sweeps.file import (
    best_in_hindsight,
    finished_results,
    make_table,
    read_sweep,
    sweep_facts,
)
from marconi_sim.sweeps.journal import journal_path, open_journal, parse
from marconi_sim.sweeps.plan import Plan, make_plan

# Files and processes: the replays themselves have an interpreted run elsewhere.
pytestmark = pytest.mark.compiled

TEXT = """
title = "Small"
description = "For tests."

[[traces]]
trace = "sharegpt"
sessions = 30
sessions_per_second = [1, 4]
capacity = ["0.5GB", "1GB", "0.2wss"]

[[policies]]
policy = "marconi"

[[policies]]
policy = "marconi"
label = "static alpha"
best = "best static alpha"
params.alpha = [0.0, 0.5, 1.0]

[[policies]]
policy = "vllm+"
params.block_size = [16, 32]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def plan(file: Path) -> Plan:
    return make_plan(load_experiment(file))


@pytest.fixture
def one_run_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_CHUNK_REQUESTS", 1)


@pytest.fixture
def whole(plan: Plan, tmp_path: Path) -> bytes:
    """The file of the plan, never interrupted."""
    (tmp_path / "whole").mkdir()
    sweeping.run_plan(plan, out=tmp_path / "whole" / "small.parquet", jobs=1)
    return (tmp_path / "whole" / "small.parquet").read_bytes()


def test_every_row_is_what_simulate_says(plan: Plan) -> None:
    rows = sweeping.run_plan(plan, jobs=1).table.to_pylist()
    assert len(rows) == 6 * (1 + 3 + 2 + 1)
    for row in rows:
        workload = ms.load_trace(
            "sharegpt", sessions=30, sessions_per_second=row["sessions_per_second"]
        )
        # A column of words and numbers is text.
        params = {k.removeprefix("param_"): v for k, v in row.items() if k.startswith("param_")}
        summary = ms.simulate(
            workload,
            policy=row["policy"],
            capacity=row["capacity_bytes"],
            params={k: v for k, v in params.items() if v is not None},
        ).row()
        assert {m: row[m] for m in METRICS} == {m: summary[m] for m in METRICS}
        for name in ("trace", "policy", "model", "trace_sha256", "policy_sha256", "version"):
            assert row[name] == summary[name]
        assert row["tuned_alpha"] == summary.get("tuned_alpha")


def test_rules_of_the_published_code(file: Path, tmp_path: Path) -> None:
    text = TEXT.replace("[1, 4]", "4").replace('"0.5GB", "1GB", "0.2wss"', '"1GB"')
    text = text.replace('policy = "marconi"\n\n', 'policy = "marconi"\nrules = "artifact"\n\n')
    file.write_text(text + 'rules = ["paper", "artifact"]\nlabel = "blocks"\n')
    out = tmp_path / "rules.parquet"
    frame = ms.sweep(file, out=out, jobs=2)
    assert list(frame["label"]) == ["marconi", *["static alpha"] * 3, *["blocks"] * 4, "best static alpha"]  # fmt: skip
    assert list(frame["rules"]) == ["artifact", *["paper"] * 5, *["artifact"] * 2, "paper"]
    workload = ms.load_trace("sharegpt", sessions=30, sessions_per_second=4)
    differing = 0
    for row in frame[frame.label.isin(["marconi", "blocks"])].to_dict("records"):
        params = {"block_size": int(row["param_block_size"])} if row["label"] == "blocks" else {}
        summaries = {
            rules: ms.simulate(
                workload, policy=row["policy"], capacity="1GB", params=params, rules=rules
            ).row()
            for rules in ("paper", "artifact")
        }
        assert {m: row[m] for m in METRICS} == {m: summaries[row["rules"]][m] for m in METRICS}
        differing += summaries["paper"]["peak_bytes"] != summaries["artifact"]["peak_bytes"]
    assert differing
    assert len(set(frame["run"][frame.label != "best static alpha"])) == len(frame) - 1
    again = sweeping.run_plan(make_plan(load_experiment(file)), out=out, jobs=1)
    assert (again.ran, again.found) == (0, len(frame) - 1)


def test_a_capacity_may_be_a_fraction_of_what_unbounded_holds(plan: Plan) -> None:
    frame = sweeping.run_plan(plan, jobs=1).table.to_pandas()
    for rate, rows in frame[frame.capacity == "0.2wss"].groupby("sessions_per_second"):
        workload = ms.load_trace("sharegpt", sessions=30, sessions_per_second=rate)
        peak = ms.simulate(workload, policy="unbounded").summary["peak_bytes"]
        assert set(rows.capacity_bytes) == {int(0.2 * peak)}


def test_the_best_in_hindsight_is_the_first_of_the_best_in_each_configuration() -> None:
    def row(configuration: str, label: str, alpha: float, rate: float) -> dict[str, Any]:
        return {
            "configuration": configuration, "label": label, "alpha": alpha, "token_hit_rate": rate
        }  # fmt: skip

    rows = [
        row("a", "other", 9.0, 0.9), row("a", "static", 0.0, 0.2), row("a", "static", 0.1, 0.3),
        row("a", "static", 0.2, 0.3), row("b", "static", 0.0, 0.5), row("b", "static", 0.1, 0.1),
        row("c", "other", 0.0, 0.5),
    ]  # fmt: skip
    found = best_in_hindsight(rows, {"static": "best"})
    assert found == [
        *rows[:4], row("a", "best", 0.1, 0.3), *rows[4:6], row("b", "best", 0.0, 0.5), rows[6],
    ]  # fmt: skip


def test_the_sweep_has_the_best_static_alpha(plan: Plan) -> None:
    frame = sweeping.run_plan(plan, jobs=1).table.to_pandas()
    best = frame[frame.label == "best static alpha"].set_index("configuration")
    static = frame[frame.label == "static alpha"]
    assert len(best) == 6
    assert (
        best.token_hit_rate == static.groupby("configuration").token_hit_rate.max()[best.index]
    ).all()
    assert set(best.run) < set(static.run), "a best row names the run that it repeats"


def test_two_processes_write_the_same_bytes_as_one(
    plan: Plan, whole: bytes, tmp_path: Path, one_run_a_chunk: None
) -> None:
    swept = sweeping.run_plan(plan, out=tmp_path / "small.parquet", jobs=2)
    assert (swept.found, swept.ran) == (0, len(plan.runs))
    assert (tmp_path / "small.parquet").read_bytes() == whole
    assert not journal_path(tmp_path / "small.parquet").exists()


def test_the_columns_are_typed_and_hold_no_wall_clock(plan: Plan, whole: bytes) -> None:
    table = pq.read_table(pa.BufferReader(whole))
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types)[:5] == ["experiment", "label", "trace", "synthetic", "policy"]
    assert "seconds" not in types
    expected = {
        "param_alpha": "string", "param_multiplier": "int64", "param_block_size": "int64", "capacity": "string",
        "capacity_bytes": "int64", "sessions_per_second": "double", "response_time": "double", "seed": "int64",
        "token_hit_rate": "double", "flops_saved": "double", "missed_cold": "int64", "tuned_alpha": "double",
        "first_eviction_request": "int64", "synthetic": "bool", "run": "string",
    }  # fmt: skip
    assert {name: types[name] for name in expected} == expected
    facts = sweep_facts(table)
    assert facts["experiment"] == "small"
    assert facts["traces"]["sharegpt"]["source"].startswith("Marugannwg")


def test_a_rerun_runs_nothing_and_changes_nothing(plan: Plan, whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "whole" / "small.parquet"
    swept = sweeping.run_plan(plan, out=out, jobs=1)
    assert (swept.found, swept.ran) == (len(plan.runs), 0)
    assert out.read_bytes() == whole
    assert sweeping.run_plan(plan, out=out, jobs=1, resume=False).ran == len(plan.runs)
    assert out.read_bytes() == whole


def test_a_changed_experiment_runs_what_is_new(file: Path, whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "whole" / "small.parquet"
    file.write_text(TEXT.replace("[0.0, 0.5, 1.0]", "[0.5, 1.0, 2.0]").replace("[16, 32]", "16"))
    changed = make_plan(load_experiment(file))
    assert sweeping.run_plan(changed, out=out, jobs=1).ran == 6
    resumed = out.read_bytes()
    sweeping.run_plan(changed, out=out, jobs=1, resume=False)
    assert out.read_bytes() == resumed


def interrupt(out: Path, results: dict[str, Any]) -> None:
    """Leave a journal behind that holds these results."""
    with contextlib.suppress(KeyboardInterrupt), open_journal(out, True) as journal:
        journal.add(results.items())
        raise KeyboardInterrupt


def test_results_survive_the_file_and_the_journal_exactly(plan: Plan, tmp_path: Path) -> None:
    table = sweeping.run_plan(plan, jobs=1).table
    results = finished_results(table)
    interrupt(tmp_path / "x", results)
    again, _ = parse(journal_path(tmp_path / "x").read_bytes())
    assert make_table(plan, again).equals(table)
    assert make_table(plan, results).equals(table)


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_journals_torn_line_is_dropped_and_its_run_runs_again(
    plan: Plan, whole: bytes, tmp_path: Path, cut: int
) -> None:
    results = finished_results(read_sweep(tmp_path / "whole" / "small.parquet"))
    out = tmp_path / "small.parquet"
    interrupt(out, dict(list(results.items())[:5]))
    content = journal_path(out).read_bytes()
    last = content.splitlines(keepends=True)[-1]
    journal_path(out).write_bytes(content[: -len(last)] + last[:cut])
    interrupt(
        out, {"another": {"a": 1}}
    )  # what is written behind the torn line is not lost with it
    assert list(parse(journal_path(out).read_bytes())[0]) == [*list(results)[:4], "another"]
    swept = sweeping.run_plan(plan, out=out, jobs=1)
    assert swept.found == 4
    assert out.read_bytes() == whole


def in_child(work: Callable[[], None], then: Callable[[int], None]) -> int:
    """Call `work` in a forked process and `then` with its number here; return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking where there are threads
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    then(child)
    return os.waitpid(child, 0)[1]


def nothing(_child: int) -> None:
    pass


KILLED = signal.SIGKILL.value


def rows_in_journal(out: Path) -> int:
    try:
        return journal_path(out).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_twenty_kills_at_random_moments_leave_the_same_file(
    file: Path, tmp_path: Path, one_run_a_chunk: None
) -> None:
    file.write_text(TEXT.replace("[0.0, 0.5, 1.0]", str([i / 20 for i in range(20)])))
    plan = make_plan(load_experiment(file))
    folder, out = tmp_path / "whole" / "r", tmp_path / "whole" / "small.parquet"
    folder.parent.mkdir()
    started = time.perf_counter()
    sweeping.run_plan(plan, out=out, jobs=1, requests_dir=folder)
    runs = len(plan.runs)
    seconds_per_run = (time.perf_counter() - started) / runs
    again, again_folder = tmp_path / "small.parquet", tmp_path / "r"
    rng = random.Random(0)
    # A kill comes somewhere in the run after so many finished ones: five in each quarter, on any machine.
    moments = [q * runs // 4 + m for q in range(4) for m in sorted(rng.sample(range(runs // 4), 5))]
    killed_at = []

    def work() -> None:
        sweeping.run_plan(plan, out=again, jobs=1, requests_dir=again_folder)

    def kill(child: int) -> None:
        while rows_in_journal(again) < moments[len(killed_at)] and not ended(child):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, seconds_per_run))
        os.kill(child, signal.SIGKILL)

    def check() -> None:
        assert again.read_bytes() == out.read_bytes()
        found = {p.name: p.read_bytes() for p in again_folder.iterdir()}
        assert found == {p.name: p.read_bytes() for p in folder.iterdir()}
        assert {p.name for p in tmp_path.iterdir()} == {"r", "small.parquet", "small.toml", "whole"}

    while len(killed_at) < len(moments):
        if again.exists() and not journal_path(again).exists():
            check()  # it ended before the kill came: once more from the start
            again.unlink()
            shutil.rmtree(again_folder)
        status = in_child(work, kill)
        assert status in (0, KILLED)
        if status == KILLED:
            killed_at.append(rows_in_journal(again))
    assert {rows * 4 // runs for rows in killed_at} >= {0, 1, 2, 3}, killed_at
    work()
    check()


@pytest.mark.parametrize("moment", ["journal", "rename", "renamed", "deleted"])
def test_a_kill_at_the_worst_moment_leaves_the_same_file(
    plan: Plan, whole: bytes, tmp_path: Path, one_run_a_chunk: None, moment: str
) -> None:
    out = tmp_path / "small.parquet"

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        write, replace, truncate = os.write, Path.replace, os.ftruncate
        count = 0

        def torn_write(handle: int, data: bytes) -> int:
            nonlocal count
            count += 1
            if count == 7:
                write(handle, data[: len(data) // 2])
                die()
            return write(handle, data)

        def dying_replace(self: Path, target: Path) -> Path:
            if moment == "rename":
                die()
            replace(self, target)
            die()
            return target

        def dying_truncate(handle: int, size: int) -> None:
            truncate(handle, size)
            if out.exists():
                die()

        if moment == "journal":
            os.write = torn_write
        elif moment == "deleted":
            os.ftruncate = dying_truncate
        else:
            Path.replace = dying_replace  # type: ignore[method-assign, assignment]
        sweeping.run_plan(plan, out=out, jobs=1)

    assert in_child(work, nothing) == KILLED
    assert out.exists() == (moment in ("renamed", "deleted"))
    swept = sweeping.run_plan(plan, out=out, jobs=1)
    assert swept.found == (6 if moment == "journal" else len(plan.runs))
    assert out.read_bytes() == whole
    assert {p.name for p in tmp_path.iterdir()} == {"small.parquet", "small.toml", "whole"}


def test_each_run_writes_its_requests_and_a_missing_file_is_made_again(
    plan: Plan, tmp_path: Path
) -> None:
    out, folder = tmp_path / "o.parquet", tmp_path / "requests"
    frame = sweeping.run_plan(plan, out=out, jobs=1, requests_dir=folder).table.to_pandas()
    assert {path.stem for path in folder.iterdir()} == set(frame.run)
    for row in frame.itertuples():
        requests = pd.read_parquet(folder / f"{row.run}.parquet")
        assert len(requests) == row.requests
        assert requests.reused_tokens.sum() == row.reused_tokens
        assert requests.input_tokens.sum() == row.input_tokens
    victim = folder / f"{frame.run[0]}.parquet"
    content = victim.read_bytes()
    victim.unlink()
    assert sweeping.run_plan(plan, out=out, jobs=1, requests_dir=folder).ran == 1
    assert victim.read_bytes() == content


def test_two_sweeps_do_not_write_one_file(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "o.parquet"
    with (
        pytest.raises(UserError, match="another sweep is writing there"),
        open_journal(out, True),
    ):
        sweeping.run_plan(plan, out=out, jobs=1)


def test_a_file_that_is_no_sweeps_is_not_overwritten(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "o.parquet"
    pq.write_table(pa.table({"a": [1]}), out)
    with pytest.raises(UserError, match="not of a sweep"):
        sweeping.run_plan(plan, out=out, jobs=1)
    assert pq.read_table(out).column_names == ["a"]
    out.write_text("text")
    with pytest.raises(UserError, match="not a Parquet file"):
        sweeping.run_plan(plan, out=out, jobs=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.parquet", "small.toml"]


BROKEN = '''"""Broken."""
from typing import Any
from marconi_sim.policy import Entry, RadixPolicy, kernel


class Broken(RadixPolicy):
    """Divides by zero."""

    @staticmethod
    @kernel
    def value(entry: Entry, params: Any) -> float:
        """Not a number."""
        return float("nan")
'''


def test_a_run_that_fails_is_named_and_the_others_are_kept(
    file: Path, tmp_path: Path, one_run_a_chunk: None
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    file.write_text(TEXT + '\n[[policies]]\npolicy = "./broken.py"\n')
    plan = make_plan(load_experiment(file))
    out = tmp_path / "o.parquet"
    with pytest.raises(
        UserError, match=r"broken.*trace 'sharegpt' with capacity 0.5GB: .*not finite"
    ):
        sweeping.run_plan(plan, out=out, jobs=1)
    assert not out.exists()
    assert len(parse(journal_path(out).read_bytes())[0]) >= 6


def test_a_worker_with_another_version_of_a_policy_says_so(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(BROKEN.replace('float("nan")', "1.0"))
    file.write_text(TEXT + '\n[[policies]]\npolicy = "./own.py"\n')
    plan = make_plan(load_experiment(file))
    own.write_text(own.read_text() + "# edited\n")
    with pytest.raises(UserError, match=r"own.*another version"):
        sweeping.run_plan(plan, jobs=1)


def test_workers_compile_nothing_that_the_parent_has_not(plan: Plan) -> None:
    sweeping.compile_kernels(plan, plan.runs)
    before = len(replay_radix.signatures)  # type: ignore[attr-defined]
    sweeping.run_plan(plan, jobs=1)
    assert len(replay_radix.signatures) == before  # type: ignore[attr-defined]


def test_from_python(file: Path, tmp_path: Path) -> None:
    frame = ms.sweep(file, out=tmp_path / "o.parquet", jobs=1)
    assert frame.equals(pd.read_parquet(tmp_path / "o.parquet"))
    with pytest.raises(UsageError, match="jobs 0: must be a whole number"):
        ms.sweep(file, jobs=0)
    with pytest.raises(UsageError, match="jobs 2: has no effect with a scheduler"):
        ms.sweep(file, jobs=2, scheduler="tcp://127.0.0.1:1")
    file.write_text("requests = true\n" + TEXT)
    with pytest.raises(UsageError, match="give out or requests_dir"):
        ms.sweep(file, jobs=1)
    ms.sweep(file, out=tmp_path / "o.parquet", jobs=1)
    assert len(list((tmp_path / "o.requests").iterdir())) == 36


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_workers_end_with_a_killed_parent(file: Path, tmp_path: Path) -> None:
    alphas = str([i / 1000 for i in range(2000)])
    file.write_text(TEXT.replace("[0.0, 0.5, 1.0]", alphas))
    sweep = [sys.executable, "-m", "marconi_sim", "sweep", str(file), "-j", "2"]
    out = tmp_path / "o.parquet"
    with subprocess.Popen([*sweep, "--out", str(out)], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (journal_path(out).exists() and journal_path(out).stat().st_size):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        workers = list(children(process.pid))
        process.kill()
    assert len(workers) >= 2
    while any(running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def children(parent: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(status.parent.name)


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_dask_cluster_writes_the_same_bytes(
    plan: Plan, whole: bytes, tmp_path: Path, one_run_a_chunk: None
) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        out = tmp_path / "small.parquet"
        swept = sweeping.run_plan(plan, out=out, scheduler=cluster.scheduler_address)
    assert swept.ran == len(plan.runs)
    assert out.read_bytes() == whole


@pytest.mark.parametrize("scheduler", ["tcp://127.0.0.1:1", "nonsense", "foo://nowhere:1"])
def test_a_scheduler_that_cannot_be_reached_is_named(
    plan: Plan, tmp_path: Path, scheduler: str
) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UserError, match=f"scheduler '{scheduler}': cannot be reached"):
        sweeping.run_plan(plan, out=tmp_path / "o.parquet", scheduler=scheduler)
    assert [p.name for p in tmp_path.iterdir()] == ["small.toml"]


def test_without_the_dask_extra_the_error_names_it(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'marconi-sim\[dask\]'"):
        sweeping.run_plan(plan, scheduler="tcp://127.0.0.1:1")
