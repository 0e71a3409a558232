"""Values of options and JSON records, checked: an error names the file, the line and the key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.importing.format import ImportOptions

LONGEST_SEQUENCE = 2**31 - 1  # tokens; depths in the prefix index are int32
LARGEST_ID = 2**63 - 1


def block_size(options: ImportOptions, default: int) -> int:
    """Return the block size of a trace of block hashes.

    Raises:
        UsageError: less than 1.
    """
    chosen = default if options.block_size is None else options.block_size
    if chosen < 1:
        raise UsageError(f"--block-size {chosen}: must be at least 1 token")
    return chosen


def required(record: dict[str, Any], key: str, place: str) -> Any:
    """Return record[key].

    Args:
        record: a JSON object.
        key: what must be there.
        place: where the record is: `FILE:LINE`, with more behind it where records are nested.

    Raises:
        UserError: the key is missing.
    """
    if key not in record:
        raise UserError(f"{place}: '{key}' is missing; keys found: {', '.join(record) or 'none'}")
    return record[key]


def whole_number(record: dict[str, Any], key: str, place: str, smallest: int) -> int:
    """Return record[key], a whole number in [smallest, 2^31 - 1].

    Raises:
        UserError: missing, not a whole number, or out of range.
    """
    value = required(record, key, place)
    if type(value) is not int or not smallest <= value <= LONGEST_SEQUENCE:
        raise UserError(
            f"{place}: {key} is {value!r},"
            f" expected a whole number from {smallest} to {LONGEST_SEQUENCE}"
        )
    return value


def number(record: dict[str, Any], key: str, place: str) -> float:
    """Return record[key], a finite number.

    Raises:
        UserError: missing, not a number, or not finite.
    """
    value = required(record, key, place)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{place}: {key} is {value!r}, expected a finite number")
    return float(value)


def optional_number(record: dict[str, Any], key: str, place: str) -> float:
    """Return record[key], a finite number, or NaN if the key is missing or null.

    Raises:
        UserError: not a number, or not finite.
    """
    return math.nan if record.get(key) is None else number(record, key, place)


class SessionNames:
    """Names of the sessions of one file, whose ids are whole numbers or texts."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int | str, str]] = {}

    def name(self, given: Any, place: str) -> str:
        """Return the name of the session with the id `given`.

        Args:
            given: the id.
            place: where it stands: `FILE:LINE`.

        Raises:
            UserError: neither a whole number nor text; or the number 1 where an earlier line has the text "1", or the
                other way round: whether they mean one session, the file does not say.
        """
        shown = orjson.dumps(given).decode()
        if type(given) not in (int, str):
            raise UserError(f"{place}: session_id is {shown}, expected a whole number or text")
        name = str(given)
        first, there = self._first.setdefault(name, (given, place))
        if type(first) is not type(given):
            raise UserError(
                f"{place}: session_id is {shown}, but at {there} it is {orjson.dumps(first).decode()};"
                " write the ids of one session alike, those of two differently"
            )
        return name


def text(record: dict[str, Any], key: str, place: str) -> str:
    """Return record[key], a string.

    Raises:
        UserError: missing, or not a string.
    """
    value = required(record, key, place)
    if not isinstance(value, str):
        raise UserError(f"{place}: {key} is {type(value).__name__}, expected a string")
    return value


def block_ids(record: dict[str, Any], key: str, place: str) -> NDArray[np.int64]:
    """Return record[key], a list of ids in [0, 2^63 - 1], as int64 (blocks,).

    Raises:
        UserError: missing, not a list, or something in it is not such an id.
    """
    ids = required(record, key, place)
    if not isinstance(ids, list):
        raise UserError(f"{place}: {key} is {type(ids).__name__}, expected a list of block ids")
    if not set(map(type, ids)) <= {int} or (ids and not 0 <= min(ids) <= max(ids) <= LARGEST_ID):
        at, bad = next(
            (i, x) for i, x in enumerate(ids) if type(x) is not int or not 0 <= x <= LARGEST_ID
        )
        raise UserError(
            f"{place}: {key}[{at}] is {bad!r}, expected a whole number from 0 to 2^63 - 1"
        )
    return np.array(ids, np.int64)
