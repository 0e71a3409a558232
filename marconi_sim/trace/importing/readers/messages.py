"""Format `messages`: JSONL of sessions, one a line, each with a list of messages.

    {"session_id": "a", "messages": [{"role": "user", "content": "hello"}, ...]}

`session_id` may be left out; the session is then called by the number of its line. Times, where
messages have them: `ts` (ISO 8601 text, or seconds) says when a message was sent and becomes the
arrival of the request that follows; `elapsed_min` (minutes) says how long the user took and becomes
the think time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import (
    MESSAGE_OPTIONS,
    Message,
    Session,
    message,
    message_requests,
)
from marconi_sim.trace.importing.fields import SessionNames
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_json_lines

# A list of messages after a time or inside a request is the log of an API, one request a line.
_LOOKS_LIKE = re.compile(
    rb'^\s*\{(?:(?!"(?:timestamp|created|ts|request)"\s*:).)*?"messages"\s*:\s*\[', re.DOTALL
)


def _seconds(value: Any, place: str) -> float:
    """Return the time of a message in seconds; text without a time zone is taken as UTC."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise UserError(f"{place}: ts {value!r}, expected ISO 8601 or seconds") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if type(value) not in (int, float) or not value >= 0:
        raise UserError(f"{place}: ts {value!r}, expected ISO 8601 or seconds")
    return float(value)


def _elapsed(value: Any, place: str) -> float:
    try:
        minutes = float(value) if type(value) in (int, float, str) else math.nan
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes < math.inf:
        raise UserError(f"{place}: elapsed_min {value!r}, expected minutes, at least 0")
    return 60 * minutes


def _timed(record: Any, place: str) -> Message:
    sent = message(record, place)
    if "ts" in record:
        sent = sent._replace(time=_seconds(record["ts"], place))
    if "elapsed_min" in record:
        sent = sent._replace(think_time=_elapsed(record["elapsed_min"], place))
    return sent


def _sessions(path: Path) -> Iterator[Session]:
    names = SessionNames()
    for number, record in read_json_lines(path):
        place = f"{path}:{number}"
        messages = record.get("messages")
        if not isinstance(messages, list):
            raise UserError(f"{place}: no list 'messages'; expected session_id and messages")
        name = names.name(record.get("session_id", number), place)
        yield Session(name, [_timed(m, f"{place}: messages[{i}]") for i, m in enumerate(messages)])


def read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    """Yield the requests of a file, session by session; see `marconi_sim.trace.importing.convert`.

    Raises:
        UserError: the file cannot be read, or names the first line and message that is not as
            described above.
    """
    return message_requests(lambda: _sessions(path), options, notes)


FORMAT = Format(
    name="messages",
    summary="JSONL of sessions: session_id, messages with role and content, optional times",
    options=MESSAGE_OPTIONS,
    matches=lambda path, start: bool(_LOOKS_LIKE.match(start)) and ".traj" not in path.name,
    read=read,
)
