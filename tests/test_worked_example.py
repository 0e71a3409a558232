"""`docs/examples/gdsf.py`: what docs/policies.md explains is what it says, found and compiled like any policy."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import naive
import pytest
from hypothesis import given
from naive import RadixCache
from strategies import Case, cases
from support import REPOSITORY, kernel_case, step_by_step
from test_kernels import HUNDREDS, bounded, forest

import marconi_sim as ms
from marconi_sim.base import catalogue
from marconi_sim.core.radix.evict import Entry
from marconi_sim.policy.load import load_policy

EXAMPLE = REPOSITORY / "docs" / "examples" / "gdsf.py"
PAGE = (REPOSITORY / "docs" / "policies.md").read_text("utf-8")


def worth(weight: float) -> Any:
    def value(entry: naive.Entry) -> float:
        size = (
            entry.edge_kv_bytes + entry.state_bytes
        )  # 0 before its state is there, without attention
        return entry.floor + (1 + weight * entry.hits) * entry.flops / size if size else 0.0

    return value


def assert_agrees(case: Case, weight: float) -> list[dict[str, Any]]:
    cache = RadixCache(
        case.capacity_bytes,
        case.shape,
        value=worth(weight),
        score=lambda recency, value: value,
        normalised=False,
    )
    expected = naive.replay(cache, case.requests, check=True)
    policy = load_policy(EXAMPLE)(weight=weight)
    replay = kernel_case(case.requests, case.shape, case.capacity_bytes)
    assert step_by_step(policy, replay, check=True) == expected
    return expected


@given(cases())
@bounded
def test_example_is_greedy_dual_size_frequency(case: Case):
    assert_agrees(case, weight=1.0)


@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_example_with_hundreds_of_entries(weight: float):
    requests = forest(random.Random(3), 500, 12)
    rows = assert_agrees(Case(requests, HUNDREDS, 64 * 1500 + 192 * 200, block=4), weight)
    assert rows[-1]["evictions"] > 200


def test_page_shows_the_file_as_it_is():
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```\n" in PAGE


def test_page_lists_every_shipped_policy_and_its_parameters():
    rows = dict(
        re.findall(
            r"^\| `([^`]+)` \| (.*) \|$", PAGE.split("## A policy of your own")[0], re.MULTILINE
        )
    )
    assert set(rows) == set(catalogue.entries("policies"))
    for name, row in rows.items():
        listed = re.findall(r"`([^`]+)`", row.split("|")[-1])
        assert sorted(listed) == sorted(load_policy(name).parameters())


def test_page_lists_every_field_and_rule():
    fields = {
        field
        for row in re.findall(r"^\| (`.*?`) \| ", PAGE, re.MULTILINE)
        for field in row.strip("`").split("`, `")
    }
    assert set(Entry._fields) <= fields
    assert {"admits", "evicts", "touches", "normalised", "unlimited", "bootstrap_grid"} <= fields


def test_in_a_folder_of_ones_own_the_file_has_a_name(tmp_path: Path):
    (tmp_path / "policies").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "policies")
    named = ms.simulate("taubench", policy="gdsf", capacity="1GB", search=[tmp_path])
    by_path = ms.simulate("taubench", policy=EXAMPLE, capacity="1GB", check=True)
    assert named.summary["policy"] == by_path.summary["policy"] == "gdsf"
    assert named.summary["evictions"] > 0
    assert (named.requests == by_path.requests).all().all()
    assert named.summary["policy_sha256"] == by_path.summary["policy_sha256"]


def test_command_of_the_page_runs():
    command = "run --trace taubench --policy docs/examples/gdsf.py"
    assert f"    marconi-sim {command}\n" in PAGE
    done = subprocess.run(
        [sys.executable, "-m", "marconi_sim", *command.split()],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gdsf" in done.stdout
    assert done.stderr == ""
