"""Format `lmcache`: LMCache's agent logs, one call a line, text joined to one string.

    {"timestamp": 1760428436442742, "input": "...", "output": "...", "session_id": "0639..."}

`timestamp` is in microseconds; lines are not in order of time. `input` joins the messages of
system, user and tools by blank lines and leaves the assistant's turns out: within a session, each
input begins with an earlier one. So the conversation is put together again: the earlier input, the
answer to it, and what is new as a user's message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import Message, message
from marconi_sim.trace.importing.fields import SessionNames, required, text
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_json_lines
from marconi_sim.trace.importing.request_log import Call, log_requests

_KEYS = (b'"timestamp"', b'"input"', b'"output"', b'"session_id"')
_BETWEEN_MESSAGES = "\n\n"


class _Line(NamedTuple):
    time: float
    input: str
    output: str


class _Answered(NamedTuple):
    """An input with the conversation up to and including the answer to it."""

    input: str
    conversation: list[Message]


def _said(role: str, content: str) -> Message:
    # The log does not tell what a user typed from what a tool returned.
    return message({"role": role, "content": content}, role)._replace(words=-1)


def _read_sessions(path: Path) -> dict[str, list[_Line]]:
    sessions = defaultdict(list)
    names = SessionNames()
    for number, record in read_json_lines(path):
        place = f"{path}:{number}"
        time = required(record, "timestamp", place)
        if type(time) is not int or time < 0:
            raise UserError(f"{place}: timestamp is {time!r}, expected whole microseconds")
        session = names.name(required(record, "session_id", place), place)
        line = _Line(time / 1e6, text(record, "input", place), text(record, "output", place))
        if not line.input:
            raise UserError(f"{place}: input is empty, a request has at least one input token")
        sessions[session].append(line)
    return sessions


def _conversation(session: str, lines: list[_Line], notes: dict[str, Any]) -> Iterator[Call]:
    """Yield the calls of a session with the answers put back into their inputs."""
    earlier: list[_Answered] = []
    for line in sorted(lines, key=lambda line: line.time):
        begun = [e for e in earlier if line.input.startswith(e.input) and e.input != line.input]
        history: list[Message] = []
        rest = line.input
        if begun:
            last = max(begun, key=lambda e: len(e.input))
            history = last.conversation
            rest = rest[len(last.input) :].removeprefix(_BETWEEN_MESSAGES)
        elif earlier:
            notes["inputs_that_extend_no_earlier_one"] += 1
        messages = [*history, _said("user", rest)]
        answer = _said("assistant", line.output)
        earlier.append(_Answered(line.input, [*messages, answer]))
        yield Call(line.time, messages, answer, session=session)


def _read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    notes["conversations"] = (
        "inferred: the log leaves the assistant's turns out of its inputs; each is put back behind"
        " the longest earlier input of the session that the input begins with"
    )
    notes["inputs_that_extend_no_earlier_one"] = 0
    sessions = _read_sessions(path)
    calls = (call for name, lines in sessions.items() for call in _conversation(name, lines, notes))
    return log_requests(calls, options, notes)


def _matches(path: Path, head: bytes) -> bool:
    # The input may be longer than the beginning of the file that is looked at.
    seen = [key in head for key in _KEYS]
    return head.lstrip().startswith(b"{") and seen[0] and seen[1] and b'"messages"' not in head


FORMAT = Format(
    name="lmcache",
    summary="JSONL of LMCache's agent logs: timestamp (us), input, output, session_id",
    options=frozenset({"tokenizer"}),
    matches=_matches,
    read=_read,
)
