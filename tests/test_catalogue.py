"""Names and paths on the command line, and which file they mean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's catalogue folder; the environment names none."""
    monkeypatch.delenv(catalogue.ENVIRONMENT_VARIABLE, raising=False)
    (tmp_path / "mine" / "traces").mkdir(parents=True)
    (tmp_path / "mine" / "policies").mkdir()
    return tmp_path / "mine"


def test_a_shipped_name_is_found_without_any_folder(mine: Path) -> None:
    assert catalogue.find("traces", "swebench") == catalogue.shipped() / "traces" / "swebench.toml"


def test_the_current_directory_never_replaces_a_shipped_name(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine / "traces")
    (mine / "traces" / "swebench").write_text("mine")
    (mine / "traces" / "swebench.parquet").write_text("mine")
    assert catalogue.find("traces", "swebench").parent == catalogue.shipped() / "traces"


def test_a_name_in_the_current_directory_alone_is_unknown(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine / "policies")
    (mine / "policies" / "greedy.py").write_text("")
    with pytest.raises(UsageError, match="policy 'greedy': no such file and not in the catalogue"):
        catalogue.find("policies", "greedy")


def test_a_shipped_name_wins_over_the_users_folder(mine: Path) -> None:
    (mine / "traces" / "swebench.toml").write_text("")
    assert catalogue.find("traces", "swebench", [mine]).parent != mine / "traces"


def test_folders_are_searched_in_the_order_given_then_the_environment(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "policies").mkdir(parents=True)
    for folder in (mine, other):
        (folder / "policies" / "greedy.py").write_text("")
    (other / "policies" / "lazy.py").write_text("")
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, os.pathsep + str(other))
    assert catalogue.find("policies", "greedy", [mine]) == mine / "policies" / "greedy.py"
    assert catalogue.find("policies", "greedy") == other / "policies" / "greedy.py"
    assert catalogue.find("policies", "lazy", [mine]) == other / "policies" / "lazy.py"


def test_entries_lists_each_name_once_and_leaves_out_hidden_files(mine: Path) -> None:
    for name in ("b.parquet", "a.toml", "a.parquet", "_hidden.toml", "swebench.toml"):
        (mine / "traces" / name).write_text("")
    found = catalogue.entries("traces", [mine])
    assert list(found) == sorted(found)
    assert found["a"].name == "a.toml"
    assert found["b"].name == "b.parquet"
    assert "_hidden" not in found
    assert found["swebench"].parent != mine / "traces"


def test_text_with_a_separator_is_a_path(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine)
    (mine / "noending").write_text("")
    assert catalogue.find("traces", "./noending") == Path("noending")
    with pytest.raises(UsageError, match=r"trace '\./absent': no such file"):
        catalogue.find("traces", "./absent")


def test_a_path_object_is_always_a_path(mine: Path) -> None:
    with pytest.raises(UsageError, match="trace 'swebench': no such file"):
        catalogue.find("traces", Path("swebench"))


def test_an_existing_file_with_an_ending_is_a_path(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine)
    (mine / "t.jsonl").write_text("")
    assert catalogue.find("traces", "t.jsonl") == Path("t.jsonl")


def test_an_unknown_name_suggests_a_close_one() -> None:
    with pytest.raises(UsageError, match=r"trace 'swebnch': .*did you mean 'swebench'"):
        catalogue.find("traces", "swebnch")


def test_a_missing_folder_is_named_with_where_it_was_given(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"absent: no such folder \(catalogue folder\)"):
        catalogue.find("traces", "swebench", [mine / "absent"])
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, str(mine / "gone"))
    with pytest.raises(UsageError, match=r"gone: no such folder \(in MARCONI_SIM_PATH\)"):
        catalogue.entries("policies")


def test_importing_the_catalogue_imports_nothing_heavy() -> None:
    code = (
        "import sys, marconi_sim.base.catalogue;"
        "print({'numpy', 'numba', 'pandas', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
