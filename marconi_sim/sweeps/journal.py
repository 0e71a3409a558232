"""What a sweep has finished, on disk while it runs: a process killed at any moment loses only what was running.

One line of JSON per run is appended to FILE.journal beside the sweep's file. A line that a kill cut short is dropped
when the journal is read, and its run runs again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from marconi_sim.base.errors import UserError

Results = dict[str, Any]


def journal_path(out: Path) -> Path:
    """Return the journal of a sweep's file."""
    return out.with_name(f"{out.name}.journal")


def _lock(handle: int, path: Path) -> None:
    """Keep other sweeps away while this process lives; the system forgets the lock with it."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"{path}: another sweep is writing there; wait for it, or give another --out"
            ) from error


def parse(content: bytes) -> tuple[dict[str, Results], int]:
    """Return (run -> its results, how many bytes are whole lines)."""
    found: dict[str, Results] = {}
    whole = 0
    for line in content.splitlines(keepends=True):
        try:
            entry = orjson.loads(line)
            run = entry.pop("run")
        except (orjson.JSONDecodeError, AttributeError, KeyError):
            break
        if not line.endswith(b"\n"):
            break
        found[run] = entry
        whole += len(line)
    return found, whole


def finished_in_journal(out: Path) -> dict[str, Results]:
    """Return run -> its results in the journal of a sweep's file; none if there is no journal."""
    path = journal_path(out)
    return parse(path.read_bytes())[0] if path.is_file() else {}


class Journal:
    """An open journal, or one in memory if it has no handle.

    Attributes:
        finished: run -> its results, as far as they are on disk.
    """

    def __init__(self, handle: int | None, finished: dict[str, Results]) -> None:
        self._handle = handle
        self.finished = finished

    def add(self, results: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append the results of finished runs."""
        lines = b""
        for run, found in results:
            self.finished[run] = dict(found)
            lines += orjson.dumps({"run": run, **found}, option=orjson.OPT_APPEND_NEWLINE)
        while lines and self._handle is not None:
            lines = lines[os.write(self._handle, lines) :]


@contextmanager
def open_journal(out: Path, resume: bool) -> Iterator[Journal]:
    """Open the journal of a sweep's file, alone; it is deleted when the block ends without an exception.

    Args:
        out: the sweep's file.
        resume: whether to keep what it holds.

    Raises:
        UserError: another process has it open, or it cannot be written.
    """
    path = journal_path(out)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        _lock(handle, path)
        finished, whole = parse(path.read_bytes()) if resume else ({}, 0)
        os.ftruncate(handle, whole)
        yield Journal(handle, finished)
        os.ftruncate(handle, 0)
    finally:
        # The lock is still held: nobody else has this journal.
        if os.fstat(handle).st_size == 0:
            path.unlink(missing_ok=True)
        os.close(handle)
