"""`marconi-sim fidelity`: what it writes, what it says about mistakes, and that the page in docs/ is its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from support import REPOSITORY

import marconi_sim as ms
from marconi_sim import cli
from marconi_sim.fidelity.experiment import real_traces
from marconi_sim.fidelity.report import BEGIN, END
from marconi_sim.fidelity.switches import CASES, SWITCHES, switches_of
from marconi_sim.trace.compiled.trace import save

PAGE = REPOSITORY / "docs" / "fidelity.md"
CAPACITIES = ("2GB", "4GB")


class Said(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def start(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["marconi-sim", "fidelity", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Said(ended.value.code, *capsys.readouterr())

    return start


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled trace of real sessions without a recipe."""
    path = tmp_path_factory.mktemp("traces") / "small.parquet"
    save(ms.load_trace("taubench").trace, path)
    return path


@pytest.mark.compiled
def test_it_writes_rows_a_picture_and_a_page(run: Run, small: Path, tmp_path: Path):
    out, figure, page = (tmp_path / name for name in ("rows.parquet", "figure.png", "page.md"))
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    said = run(
        "--trace", small, "--capacity", "2GB", "--capacity", "4GB", "-j", "2",
        "--out", out, "--figure", figure, "--markdown", page,
    )  # fmt: skip
    assert said.status == 0
    rows = pq.read_table(out).to_pylist()
    assert len(rows) == sum(2 + 2 * len(switches_of(case)) for case in CASES) * len(CAPACITIES)
    for row in rows:
        before = next(
            one["token_hit_rate"]
            for one in rows
            if one["switch"] == ""
            and all(one[key] == row[key] for key in ("case", "base", "capacity_bytes"))
        )
        assert row["token_hit_rate_change"] == row["token_hit_rate"] - before
        assert row["peak_over_capacity"] <= 1 or row["rules"] != "paper"
    assert {row["rules"] for row in rows} >= {
        "paper", "artifact", "paper with inverse_age", "artifact without inverse_age"
    }  # fmt: skip
    assert any(row["token_hit_rate_change"] for row in rows)

    assert figure.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in re.split(r"\W+", text)
    for switch in SWITCHES:
        assert text.count(f"| `{switch.name}` |") == 1 + len(switch.cases)
        assert switch.name in said.out
    for provenance in ("small:", "2 GB, 4 GB", "hybrid-7b", ms.__version__):
        assert provenance in text
        assert provenance in said.out


@pytest.mark.compiled
def test_rows_agree_with_simulate(run: Run, small: Path, tmp_path: Path):
    out = tmp_path / "rows.parquet"
    assert run("--trace", small, "--capacity", "3GB", "--out", out).status == 0
    rows = pq.read_table(out).to_pylist()
    assert run("--trace", small, "--capacity", "3GB", "--out", out, "-j", "1").status == 0
    assert pq.read_table(out).to_pylist() == rows
    for case, (policy, params) in CASES.items():
        for base in ("paper", "artifact"):
            summary = ms.simulate(
                small, policy=policy, params=params, capacity="3GB", rules=base
            ).summary
            (row,) = [
                one for one in rows if (one["case"], one["base"], one["switch"]) == (case, base, "")
            ]
            for key in ("token_hit_rate", "evictions", "trace_sha256", "capacity_bytes"):
                assert row[key] == summary[key]
            assert row["tuned_alpha"] == summary.get("tuned_alpha")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trace", "taubench", "--trace", "taubench"), "is given twice"),
        (("--capacity", "12XB"), "capacity '12XB': not understood"),
        (("--trace", "taubensh"), "did you mean 'taubench'"),
        (("--model", "hybrid-8b", "--trace", "taubench"), "did you mean 'hybrid-7b'"),
        (("--figure", "changes.gif"), "cannot draw '.gif'"),
        (("--out", "no/such/folder.parquet"), "does not exist"),
        (("-j", "0"), "Invalid value for '-j'"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: tuple[str, ...], message: str):
    said = run(*arguments)
    assert said.status in (1, 2)
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert said.out == ""


def test_a_bare_file_needs_a_capacity(run: Run, small: Path):
    said = run("--trace", small)
    assert said.status == 2
    assert "trace 'small': has no recipe; give --capacity" in said.err


@pytest.mark.parametrize("text", ["nothing", BEGIN, END + BEGIN])
def test_a_page_without_a_place_is_left_alone(run: Run, tmp_path: Path, text: str):
    page = tmp_path / "page.md"
    page.write_text(text)
    said = run("--trace", "taubench", "--markdown", page)
    assert said.status == 1
    assert "has no place for the tables" in said.err
    assert page.read_text() == text


def test_the_page_is_of_the_traces_and_the_switches_that_there_are():
    text = PAGE.read_text("utf-8")
    assert "lmsys" not in real_traces()
    for name in real_traces():
        workload = ms.load_trace(name)
        assert f"sha256 {workload.trace.sha256[:12]}" in text, f"{name} has changed: renew the page"
    for switch in SWITCHES:
        row: list[Any] = [f"`{switch.name}`", switch.rows, switch.paper, switch.code]
        assert f"| {' | '.join(row)} |" in text, f"{switch.name} has changed: renew the page"
    assert (PAGE.parent / "fidelity.png").exists()
