"""The elements of one big JSON array, one at a time, without holding the file in memory."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.base.progress import progress
from marconi_sim.trace.importing.lines import open_bytes

_CHUNK = 2**20
_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_ELEMENT = (
    2**28
)  # characters; where an element is malformed we stop looking for its end here


def _chunks(path: Path) -> Iterator[str]:
    """Yield the (decompressed) text of a file in pieces, with a progress bar."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as raw, progress(path.name, path.stat().st_size, "bytes") as advance:
        content = open_bytes(raw)
        position = 0
        try:
            while piece := content.read(_CHUNK):
                advance(raw.tell() - position)
                position = raw.tell()
                yield decoder.decode(piece)
            yield decoder.decode(b"", final=True)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path}: damaged gzip ({error}); copy or download the file again"
            ) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 text ({error.reason})") from error


class _Window:
    """A moving part of the text: what is consumed is forgotten, what is needed is read."""

    def __init__(self, path: Path) -> None:
        self._chunks = _chunks(path)
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def more(self, characters: int) -> bool:
        """Read about so many characters more; return whether there were any."""
        pieces = [self._text[self._at :]]
        self._at = 0
        wanted = len(pieces[0]) + characters
        have = len(pieces[0])
        while have < wanted and (piece := next(self._chunks, None)) is not None:
            pieces.append(piece)
            have += len(piece)
        grew = have > len(pieces[0])
        self._text = "".join(pieces)
        return grew

    def next_character(self) -> str:
        """Return the next character but white space, without consuming it; "" at the end."""
        while True:
            if match := _WHITE_SPACE.match(self._text, self._at):
                self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self.more(_CHUNK):
                return ""

    def skip(self) -> None:
        """Consume one character."""
        self._at += 1

    def element(self) -> Any:
        """Consume one JSON value.

        Raises:
            json.JSONDecodeError: malformed, cut off, or longer than an element can be.
        """
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                # It may only be cut off. Doubling what is there keeps the repeated attempts linear.
                length = len(self._text) - self._at
                if length > _LONGEST_ELEMENT or not self.more(max(_CHUNK, length)):
                    raise
            else:
                return value


def read_json_array(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (number from 0, element) for every element of a file that is one JSON array.

    Memory is that of the largest element, plus a piece of a few MB. `.gz` is read too.

    Raises:
        UserError: no such file, a directory, damaged gzip, nothing in it, or not a JSON array; the
            message names the element.
    """
    window = _Window(readable_file(path, "trace"))
    start = window.next_character()
    if start != "[":
        what = f"begins with {start!r}" if start else "empty"
        raise UserError(f"{path}: {what}, expected a JSON array")
    window.skip()
    number = 0
    while window.next_character() != "]" or number:
        try:
            value = window.element()
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}: element {number}: not JSON, or the file is cut off ({error.msg})"
            ) from error
        yield number, value
        number += 1
        after = window.next_character()
        if after == "]":
            break
        if after != ",":
            raise UserError(
                f"{path}: after element {number - 1}: expected ',' or ']', the file is cut off or"
                " not a JSON array"
            )
        window.skip()
    window.skip()
    if window.next_character():
        raise UserError(f"{path}: more text after the end of the JSON array")
    if number == 0:
        raise UserError(f"{path}: an empty array, expected at least one element")
