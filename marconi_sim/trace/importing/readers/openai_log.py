"""Format `openai-log`: calls of an OpenAI-style chat API, one JSON object a line.

    {"timestamp": 1760428436.4, "session_id": "a", "messages": [{"role": "user", "content": "Hi"}],
     "response": {"choices": [{"message": {"role": "assistant", "content": "Hello"}}]}}

The time is in `timestamp`, `created` or `ts`: text in ISO 8601 (UTC if it names no zone), or a
number. A number below 1e11 counts seconds, below 1e14 milliseconds, below 1e17 microseconds, else
nanoseconds; times of today differ by a factor of 1000 between units, so none is mistaken. The
answer is in `response.choices[0].message`, `output` or `completion` (text or a message) and may be
missing; `usage.completion_tokens` then gives its length. `session_id` may be missing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import Message, message
from marconi_sim.trace.importing.fields import SessionNames, whole_number
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_json_lines
from marconi_sim.trace.importing.request_log import Call, log_requests

# A time among the first keys of a long line; one inside a message is not the call's.
_LOOKS_LIKE = re.compile(rb'\s*\{[^{\[]*"(timestamp|created|ts)"\s*:')
TIME_KEYS = ("timestamp", "created", "ts")
ANSWER_KEYS = ("output", "completion")
# Numbers below the first bound are divided by the first divisor, and so on.
_UNITS = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (math.inf, 1e9))


def call_time(record: dict[str, Any], place: str) -> float:
    """Return the time of a call in seconds.

    Raises:
        UserError: none of `TIME_KEYS` is there, or it is neither a finite number of at least 0 nor
        ISO 8601.
    """
    key = next((k for k in TIME_KEYS if record.get(k) is not None), None)
    if key is None:
        raise UserError(f"{place}: no time; a call needs one of: {', '.join(TIME_KEYS)}")
    value = record[key]
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise UserError(
                f"{place}: {key} is {value!r}, expected a number or ISO 8601,"
                " e.g. 2025-10-14T07:53:56Z"
            ) from error
        zone = moment.tzinfo or datetime.UTC
        return moment.replace(tzinfo=zone).timestamp()
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise UserError(f"{place}: {key} is {value!r}, expected a finite number of at least 0")
    return float(value) / next(divisor for bound, divisor in _UNITS if value < bound)


def _answer(record: dict[str, Any], place: str) -> Message | None:
    given: Any = next((record[k] for k in ANSWER_KEYS if record.get(k) is not None), None)
    if given is None and record.get("response") is not None:
        try:
            given = record["response"]["choices"][0]["message"]
        except (KeyError, IndexError, TypeError):
            raise UserError(
                f"{place}: response has no choices[0].message; leave 'response' out if there is"
                " no answer"
            ) from None
    if given is None:
        return None
    if isinstance(given, str):
        given = {"role": "assistant", "content": given}
    if isinstance(given, dict):
        given = {"role": "assistant", "content": None} | given
    return message(given, f"{place}: answer")


def _call(record: dict[str, Any], place: str, names: SessionNames) -> Call:
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UserError(f"{place}: messages: expected a list of at least one message")
    session = record.get("session_id")
    response = record.get("response")
    usage = record.get("usage") or (response.get("usage") if isinstance(response, dict) else None)
    tokens = 0
    if isinstance(usage, dict) and "completion_tokens" in usage:
        tokens = whole_number(usage, "completion_tokens", place, 0)
    return Call(
        time=call_time(record, place),
        messages=[_message(m, f"{place}: messages[{i}]") for i, m in enumerate(messages)],
        answer=_answer(record, place),
        answer_tokens=tokens,
        session=None if session is None else names.name(session, place),
    )


def _message(record: Any, place: str) -> Message:
    # An answer that only calls tools may leave its content out.
    if isinstance(record, dict) and ("tool_calls" in record or "function_call" in record):
        record = {"content": None} | record
    return message(record, place)


def _read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    names = SessionNames()
    calls = (_call(record, f"{path}:{line}", names) for line, record in read_json_lines(path))
    return log_requests(calls, options, notes)


def _matches(path: Path, head: bytes) -> bool:
    try:
        record = orjson.loads(head.split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return bool(_LOOKS_LIKE.match(head)) and b'"messages"' in head and not path.is_dir()
    return isinstance(record, dict) and "messages" in record and bool(record.keys() & TIME_KEYS)


FORMAT = Format(
    name="openai-log",
    summary="JSONL of chat API calls: messages, a time, the response if it was logged",
    options=frozenset({"tokenizer"}),
    matches=_matches,
    read=_read,
)
