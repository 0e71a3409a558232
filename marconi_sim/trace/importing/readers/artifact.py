"""Format `artifact`: the JSONL of the published Marconi code, one request with its tokens a line.

Each line is an object with `session_id` (a whole number or text), `turn_id`, `ts` (seconds),
`input_tokens` and `output_tokens` (lists of token ids). Other keys, such as `num_input_tokens`, are
not read. Lines may be in any order.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import orjson
from numpy.typing import NDArray

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.fields import SessionNames
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_lines

_KEYS = ("session_id", "turn_id", "ts", "input_tokens", "output_tokens")
_LOOKS_LIKE = re.compile(rb'^\s*\{.*("turn_id"|"(input|output)_tokens"\s*:\s*\[)', re.DOTALL)
_LARGEST_TOKEN = 2**63 - 1
_LARGEST_TURN = 2**31 - 1


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else text[:37] + "..."


def _fail_token(tokens: list[Any], key: str, place: str) -> NoReturn:
    for i, token in enumerate(tokens):
        if type(token) is not int or not 0 <= token <= _LARGEST_TOKEN:
            raise UserError(
                f"{place}: {key}[{i}] is {_shown(token)},"
                " expected a token id: a whole number from 0 to 2^63-1"
            )
    raise AssertionError("every token is fine")


def _tokens(record: dict[str, Any], key: str, place: str, has_booleans: bool) -> array[int]:
    tokens = record[key]
    if not isinstance(tokens, list):
        raise UserError(f"{place}: {key} is {_shown(tokens)}, expected a list of token ids")
    try:
        # Refuses text, fractions and numbers beyond 64 bits at three times the speed of a check of
        # each type, but takes booleans for numbers.
        packed = array("q", tokens)
    except (TypeError, OverflowError):
        _fail_token(tokens, key, place)
    if has_booleans and any(type(token) is bool for token in tokens):
        _fail_token(tokens, key, place)
    return packed


def _symbols(
    record: dict[str, Any], place: str, has_booleans: bool
) -> tuple[NDArray[np.int32] | NDArray[np.int64], int]:
    """Return the tokens of input and output in one array, and how many belong to the input."""
    packed = _tokens(record, "input_tokens", place, has_booleans)
    input_tokens = len(packed)
    if input_tokens == 0:
        raise UserError(f"{place}: input_tokens is empty, a request has at least one input token")
    packed += _tokens(record, "output_tokens", place, has_booleans)
    symbols = np.frombuffer(packed, np.int64)
    if symbols.min() < 0:
        for key in ("input_tokens", "output_tokens"):
            if min(record[key], default=0) < 0:
                _fail_token(record[key], key, place)
    if symbols.max() <= np.iinfo(np.int32).max:
        return symbols.astype(np.int32), input_tokens
    return symbols, input_tokens


def _request(
    record: dict[str, Any], place: str, has_booleans: bool, names: SessionNames
) -> Request:
    missing = [key for key in _KEYS if key not in record]
    if missing:
        raise UserError(f"{place}: no {' and no '.join(missing)}; a line needs {', '.join(_KEYS)}")
    session = names.name(record["session_id"], place)
    turn, seconds = record["turn_id"], record["ts"]
    if type(turn) is not int or not 0 <= turn <= _LARGEST_TURN:
        raise UserError(
            f"{place}: turn_id is {_shown(turn)}, expected a whole number from 0 to 2^31-1"
        )
    if type(seconds) not in (int, float) or not seconds >= 0:
        raise UserError(
            f"{place}: ts is {_shown(seconds)}, expected seconds: a number of at least 0"
        )
    symbols, input_tokens = _symbols(record, place, has_booleans)
    return Request(
        session=session,
        turn=turn,
        symbols=symbols,
        input_tokens=input_tokens,
        output_tokens=symbols.size - input_tokens,
        arrival=float(seconds),
    )


def read(path: Path, _options: ImportOptions, _notes: dict[str, Any]) -> Iterator[Request]:
    """Yield the requests of a file in the order of its lines.

    Raises:
        UserError: the file cannot be read, or names the first line and key that is not as described
            above.
    """
    names = SessionNames()
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(
                f"{place}: not JSON ({error});"
                " expected one object a line, NaN and infinite numbers are not allowed"
            ) from error
        if not isinstance(record, dict):
            raise UserError(f"{place}: {_shown(record)}, expected one JSON object a line")
        yield _request(record, place, b"true" in line or b"false" in line, names)


FORMAT = Format(
    name="artifact",
    summary="JSONL of the published code: session_id, turn_id, ts, input_tokens, output_tokens",
    options=frozenset(),
    matches=lambda _path, start: bool(_LOOKS_LIKE.match(start)),
    read=read,
)
