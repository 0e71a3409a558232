"""Bytes as people write them, and files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marconi_sim.base import files, notices
from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.base.files import check_writable, readable_file, whole_file
from marconi_sim.base.units import UNITS, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1500", 1500),
        ("1500B", 1500),
        ("1", 1),
        ("60GB", 60 * 10**9),
        ("60GiB", 60 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("1.5 GiB", 3 * 2**29),
        (" 2 kb ", 2000),
        ("0.5KiB", 512),
        (".5KB", 500),
        ("3.KB", 3000),
        ("2MB", 2 * 10**6),
        ("2MiB", 2**21),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        ("0.1GB", 10**8),  # binary floating point would say 100000000.00000001
        ("1.0000000009GB", 1_000_000_000),
        ("8.9999999999TB", 8_999_999_999_900),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_bytes(text: str, count: int):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    ["", " ", "B", "GB", "12XB", "12 GBB", "-1", "+5", "1e9", "1,5GB", "1_000", "0x10", "nan", "inf", "٣GB", "1.2.3",
     "0", "0.0GB", "0.4", "0.0000000001GB", str(2**63), "10000000TiB"],
)  # fmt: skip
def test_what_is_no_number_of_bytes(text: str):
    with pytest.raises(UsageError) as error:
        parse_bytes(text)
    assert str(error.value).startswith(f"capacity '{text}': ")
    assert "e.g. 60GB" in str(error.value)
    assert error.value.exit_status == 2


@given(st.integers(1, 2**62), st.sampled_from(sorted(UNITS)))
def test_whole_numbers_are_exact(count: int, unit: str):
    expected = count * UNITS[unit]
    if expected < 2**63:
        assert parse_bytes(f"{count}{unit}") == expected


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (65_536, "65.54 KB"),
        (26_787_840, "26.79 MB"),
        (1_500_000_000, "1.5 GB"),
        (60 * 10**9, "60 GB"),
        (5 * 10**12, "5 TB"),
        (123_456 * 10**12, "1.235e+05 TB"),
    ],
)
def test_short_form(count: int, text: str):
    assert format_bytes(count) == text


# --- files ---


def test_file_appears_with_its_whole_content(tmp_path: Path):
    path = tmp_path / "out.bin"
    with whole_file(path) as temporary:
        temporary.write_bytes(b"new")
        assert temporary.parent == tmp_path
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path, failure: BaseException) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(b"half")
        raise failure


@pytest.mark.parametrize("failure", [ValueError("bug"), KeyboardInterrupt(), UserError("no")])
def test_failure_leaves_what_was_there(tmp_path: Path, failure: BaseException):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with pytest.raises(type(failure)):
        write_half(path, failure)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_failing_disk_is_the_users_to_know(tmp_path: Path):
    path = tmp_path / "out.bin"
    with pytest.raises(UserError, match=r"out\.bin: cannot be written \(No space left"):
        write_half(path, OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_new_file_has_ordinary_permissions(tmp_path: Path):
    path = tmp_path / "out.bin"
    before = os.umask(0o027)
    try:
        with whole_file(path) as temporary:
            temporary.write_bytes(b"x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_file_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with whole_file(Path("out.bin")) as temporary:
        temporary.write_bytes(b"x")
    assert (tmp_path / "out.bin").read_bytes() == b"x"


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="is a directory, expected the name of a file to write"):
        check_writable(tmp_path)
    with pytest.raises(UserError, match=r"the folder .*absent does not exist"):
        check_writable(tmp_path / "absent" / "x")
    check_writable(tmp_path / "x")
    monkeypatch.setattr(files.os, "access", lambda *_args: False)
    with pytest.raises(UserError, match="no permission in the folder"):
        check_writable(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "in.txt"
    with pytest.raises(UserError, match=r"in\.txt: no such file \(model\)"):
        readable_file(path, "model")
    with pytest.raises(UserError, match=r"is a directory, expected a file \(model\)"):
        readable_file(tmp_path, "model")
    path.write_text("x")
    assert readable_file(path, "model") == path
    monkeypatch.setattr(files.os, "access", lambda *_args: False)
    with pytest.raises(UserError, match=r"may not be read \(model\); check its permissions"):
        readable_file(path, "model")


# --- words ---


def test_hints():
    assert (
        did_you_mean("marconni", ["vllm+", "marconi"])
        == "; did you mean 'marconi'? known: marconi, vllm+"
    )
    assert did_you_mean("xyz", ["marconi"]) == "; known: marconi"
    assert did_you_mean("xyz", []) == "; known: none"


def test_notices_go_to_stderr(capsys: pytest.CaptureFixture[str]):
    notices.notice("by the way")
    notices.warn("look out")
    assert capsys.readouterr() == ("", "notice: by the way\nwarning: look out\n")


def test_exit_status():
    assert (UserError("x").exit_status, UsageError("x").exit_status) == (1, 2)
