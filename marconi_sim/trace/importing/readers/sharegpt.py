"""Format `sharegpt`: conversations as ShareGPT collections are published.

    {"id": "a", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", ...}]}

One JSON array of such objects, or one object a line. `id` may be left out; the conversation is then
called by its number. A message is tokenised as {"role", "content"}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.json_array import read_json_array
from marconi_sim.trace.importing.lines import first_bytes, read_json_lines

_LOOKS_LIKE = re.compile(rb'^\s*[\[{].*"conversations"\s*:\s*\[', re.DOTALL)
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "function_call": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}


def _message(record: Any, place: str) -> Message:
    if not isinstance(record, dict) or "from" not in record or "value" not in record:
        raise UserError(f"{place}: expected an object with from and value")
    if record["from"] not in _ROLES:
        raise UserError(f"{place}: from {record['from']!r}, expected one of: {', '.join(_ROLES)}")
    return message({"role": _ROLES[record["from"]], "content": record["value"]}, place)


def _session(record: Any, number: int, place: str) -> Session:
    if not isinstance(record, dict) or not isinstance(record.get("conversations"), list):
        raise UserError(f"{place}: no list 'conversations'; expected id and conversations")
    name = record.get("id", number)
    if type(name) not in (int, str):
        raise UserError(f"{place}: id {name!r}, expected a whole number or text")
    messages = enumerate(record["conversations"])
    return Session(str(name), [_message(m, f"{place}: conversations[{i}]") for i, m in messages])


def _sessions(path: Path) -> Iterator[Session]:
    if first_bytes(path).lstrip().startswith(b"["):
        for number, record in read_json_array(path):
            yield _session(record, number, f"{path}: element {number}")
    else:
        for number, record in read_json_lines(path):
            yield _session(record, number, f"{path}:{number}")


def read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    """Yield the requests of a file, session by session; see `marconi_sim.trace.importing.convert`.

    Raises:
        UserError: the file cannot be read, or names the first conversation and message that is not
            as described above.
    """
    return message_requests(lambda: _sessions(path), options, notes)


FORMAT = Format(
    name="sharegpt",
    summary="ShareGPT collections: a JSON array or JSONL of id, conversations with from and value",
    options=MESSAGE_OPTIONS,
    matches=lambda _path, start: bool(_LOOKS_LIKE.match(start)),
    read=read,
)
