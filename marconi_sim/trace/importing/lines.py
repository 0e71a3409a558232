"""Lines of a text file, plain or gzip, one at a time, with a progress bar on stderr."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import orjson

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.base.progress import progress


def open_bytes(file: IO[bytes]) -> IO[bytes]:
    """Return `file` itself, or its decompressed content if it starts like gzip."""
    magic = file.read(2)
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if magic == b"\x1f\x8b" else file


BOM = b"\xef\xbb\xbf"  # some tools put it in front of UTF-8


def first_bytes(path: Path, count: int = 4096) -> bytes:
    """Return a file's first (decompressed) bytes, fewer if it is damaged; none of a directory."""
    try:
        with path.open("rb") as file:
            start = file.read(2**16)
        if start.startswith(b"\x1f\x8b"):
            # Unlike GzipFile, gives what there is of a file that was cut off.
            start = zlib.decompressobj(wbits=31).decompress(start, count)
        return start[:count].removeprefix(BOM)
    except (OSError, zlib.error):
        return b""


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) for every line that is not blank.

    Raises:
        UserError: no such file, a directory, damaged gzip, or nothing in it.
    """
    readable_file(path, "trace")
    number = 0
    seen = False
    with path.open("rb") as raw, progress(path.name, path.stat().st_size, "bytes") as advance:
        position = 0
        try:
            for line in open_bytes(raw):
                number += 1
                if number == 1:
                    line = line.removeprefix(BOM)
                if raw.tell() != position:
                    advance(raw.tell() - position)
                    position = raw.tell()
                if text := line.strip():
                    seen = True
                    yield number, text
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path}: damaged gzip after line {number} ({error}); copy or download the file again"
            ) from error
    if not seen:
        raise UserError(f"{path}: empty, expected at least one line")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) for every line of a JSONL file.

    Raises:
        UserError: as `read_lines`, and for a line that is not a JSON object.
    """
    for number, line in read_lines(path):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(
                f"{path}:{number}: not JSON ({error}); expected one object a line"
            ) from error
        if not isinstance(record, dict):
            raise UserError(
                f"{path}:{number}: {type(record).__name__}, expected one JSON object a line"
            )
        yield number, record
