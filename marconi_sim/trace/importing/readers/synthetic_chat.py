"""Format `synthetic-chat`: a TOML file of parameters, from which chats are generated.

    kind = "synthetic chat"
    seed = 42
    sessions = 200
    min_rounds = 10
    more_rounds = 6.0          # mean, geometric
    wrapper_tokens = 12
    words_per_token = 0.7
    max_tokens = 32768
    user = { median = 30, between = 0.8, within = 1.0, largest = 4096 }
    answer = { median = 200, between = 0.6, within = 1.1, largest = 4096 }

Every key is needed; `marconi_sim.trace.synthetic` says what they mean.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError, did_you_mean
from marconi_sim.base.files import readable_file
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.synthetic import ChatParameters, LogNormal, chats

_KIND = "synthetic chat"


def _check_keys(table: Any, kind: type, place: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UserError(f"{place}: {table!r}, expected a table")
    known = [field.name for field in fields(kind)]
    for key in table:
        if key not in known:
            raise UserError(f"{place}: unknown key '{key}'{did_you_mean(key, known)}")
    for key in known:
        if key not in table:
            raise UserError(f"{place}: no key '{key}'; needed are: {', '.join(known)}")
    return table


def load_parameters(path: Path) -> ChatParameters:
    """Read and check a file of parameters.

    Raises:
        UserError: it cannot be read, is not TOML, or a key is missing, unknown or out of range.
    """
    try:
        values = tomllib.loads(readable_file(path, "synthetic chat").read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML ({error})") from error
    if values.pop("kind", None) != _KIND:
        raise UserError(f'{path}: not a file of parameters; the first line is: kind = "{_KIND}"')
    table = _check_keys(values, ChatParameters, str(path))
    for key in ("user", "answer"):
        length = _check_keys(table[key], LogNormal, f"{path}: {key}")
        table[key] = _checked(LogNormal, length, f"{path}: {key}")
    checked = _checked(ChatParameters, table, str(path))
    assert isinstance(checked, ChatParameters)
    return checked


def _checked(kind: type, values: dict[str, Any], place: str) -> Any:
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def _read(path: Path, _options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    parameters = load_parameters(path)
    notes["synthetic"] = True
    notes["generator"] = "SYNTHETIC: lengths drawn from stated distributions, no real conversation"
    notes["parameters"] = asdict(parameters)
    yield from chats(parameters)


FORMAT = Format(
    name="synthetic-chat",
    summary="TOML of parameters: generates SYNTHETIC chats with log-normal lengths",
    options=frozenset(),
    matches=lambda path, head: head.lstrip().startswith(f'kind = "{_KIND}"'.encode()),
    read=_read,
)
