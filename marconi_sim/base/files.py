"""Files appear whole or not at all: write beside the target, flush to disk, rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marconi_sim.base.errors import UsageError, UserError

# Endings of files that are not Parquet, whatever else they are.
_OTHER_ENDINGS = {
    ".arrow", ".avro", ".csv", ".db", ".feather", ".gz", ".h5", ".hdf5", ".html", ".ipc", ".json",
    ".jsonl", ".md", ".ndjson", ".npy", ".npz", ".orc", ".pdf", ".pickle", ".pkl", ".png", ".py",
    ".sqlite", ".svg", ".toml", ".tsv", ".txt", ".xls", ".xlsx", ".xml", ".yaml", ".yml", ".zip",
    ".zst",
}  # fmt: skip


def readable_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file that can be read.

    Raises:
        UserError: it does not exist, is a directory, or may not be read. `what` names its role in the message.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a directory, expected a file ({what})")
    if not path.exists():
        raise UserError(f"{path}: no such file ({what})")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: may not be read ({what}); check its permissions")
    return path


def check_writable(path: Path) -> None:
    """Raise early, before any work, if a file could not be created at `path`.

    Raises:
        UserError: `path` is a directory, or its folder does not exist or may not be written.
    """
    folder = path.resolve().parent
    if path.is_dir():
        raise UserError(f"{path}: is a directory, expected the name of a file to write")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is a device or a pipe, expected the name of a file to write")
    if not folder.is_dir():
        raise UserError(f"{path}: cannot be written, the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{path}: cannot be written, no permission in the folder {folder}")


def check_table(path: Path) -> None:
    """Raise early if a table could not be created at `path`, or if its name says that it is something else.

    Raises:
        UsageError: the ending is that of another format than Parquet.
        UserError: as `check_writable`.
    """
    if path.suffix.lower() in _OTHER_ENDINGS:
        raise UsageError(
            f"{path}: a table is written as Parquet, not {path.suffix}; give a name with .parquet"
            " (pandas and others read it and write what you need)"
        )
    check_writable(path)


def check_folder(path: Path) -> None:
    """Raise early if a folder could not be made at `path`, or written to if it is there.

    Raises:
        UserError: it is a file, or the folder it is in does not exist or may not be written.
    """
    if path.is_dir():
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: cannot be written, no permission in this folder")
    elif path.exists():
        raise UserError(f"{path}: is a file, expected a folder")
    else:
        check_writable(path)


def check_different(source: Path, out: Path) -> None:
    """Raise if writing `out` would replace what it is made from.

    Raises:
        UserError: both are the same file.
    """
    if source.exists() and out.exists() and source.samefile(out):
        raise UserError(f"{out}: is what is read; give the result another name")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it replaces `path`, on failure it is deleted.

    Raises:
        UserError: the folder does not exist or cannot be written.
    """
    check_writable(path)
    folder = path.resolve().parent
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=folder)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
