"""A TOML file of the catalogue whose mistakes are said with file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError, did_you_mean
from marconi_sim.base.files import readable_file

_WORDS = {
    str: "text", bool: "true or false", int: "a whole number", dict: "a table", list: "a list",
}  # fmt: skip
_HEADER = re.compile(r"\s*\[\[?\s*([\w.\"'-]+)\s*\]")
_MULTILINE = re.compile(r'"""|\'\'\'')


class Table:
    """A table of a document.

    Attributes:
        document: the file.
        values: its content.
        name: as in its header; empty for the document itself.
        number: which of the tables [[name]] it is, from 0.
    """

    def __init__(self, document: Document, values: dict[str, Any], name: str, number: int) -> None:
        self.document = document
        self.values = values
        self.name = name
        self.number = number

    @property
    def _where(self) -> str:
        return f" in [{self.name}]" if self.name else ""

    def _own_lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line) of the table's header and of what is set below it."""
        own, count = not self.name, -1
        for number, line in self.document.lines():
            header = _HEADER.match(line)
            if header and self.name:
                count += header[1] == self.name
                below = header[1] == self.name or header[1].startswith(f"{self.name}.")
                own = below and count == self.number
            elif header:
                own = False
            if own or (header and not self.name):
                yield number, line

    def place(self, key: str = "") -> str:
        """Return `file:line` of the line that sets `key` or opens the table `key`; default: of this table's header."""
        named = rf"(\[+\s*)?([\w.]+\.)?[\"']?{re.escape(key)}[\"']?\s*(=|\]|\.)"
        wanted = re.compile(rf"\s*({named})" if key else r"\s*\[")
        for number, line in self._own_lines():
            if wanted.match(line):
                return f"{self.document.path}:{number}"
        return self.place() if key and self.name else str(self.document.path)

    def check_keys(self, known: Iterable[str]) -> None:
        """Raise at the first key that is not known.

        Raises:
            UserError: names the line and the closest known key.
        """
        known = list(known)
        for key in self.values:
            if key not in known:
                raise UserError(
                    f"{self.place(key)}: unknown key '{key}'{self._where}{did_you_mean(key, known)}"
                )

    def take(self, key: str, kind: type) -> Any:
        """Return the value of a key that must be there and be of this kind.

        Raises:
            UserError: it is missing, or of another kind.
        """
        if key not in self.values:
            place = self.place() if self.name else self.document.path
            raise UserError(f"{place}: no key '{key}'{self._where}; {self.document.what} needs it")
        value = self.values[key]
        if type(value) is not kind:
            raise UserError(f"{self.place(key)}: {key} = {value!r}, expected {_WORDS[kind]}")
        return value

    @contextmanager
    def at(self, key: str = "") -> Iterator[None]:
        """Put the place of a key before the message of every `UserError` raised inside."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.place(key)}: {error}") from error


class Document(Table):
    """A parsed TOML file.

    Attributes:
        path: the file.
        what: its role in messages, with an article: `a recipe`.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = readable_file(path, what.split(" ", 1)[-1])
        self.what = what
        try:
            self._text = path.read_text("utf-8")
            values = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            raise UserError(f"{path}{':' + line[1] if line else ''}: not TOML ({error})") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 text ({error.reason})") from error
        super().__init__(self, values, "", 0)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line) of every line that does not begin inside a text of several lines."""
        inside = False
        for number, line in enumerate(self._text.splitlines(), 1):
            if not inside:
                yield number, line
            inside ^= len(_MULTILINE.findall(line)) % 2 == 1

    def table(self, name: str) -> Table:
        """Return the table [name].

        Raises:
            UserError: there is none.
        """
        return Table(self, self.take(name, dict), name, 0)

    def tables(self, name: str) -> list[Table]:
        """Return the tables [[name]] in their order, none if there is none.

        Raises:
            UserError: the key means something else.
        """
        found = self.values.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise UserError(f"{self.place(name)}: {name}: expected tables, each under [[{name}]]")
        return [Table(self, values, name, number) for number, values in enumerate(found)]
