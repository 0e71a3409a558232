"""Format `swe-agent`: a folder of trajectories of SWE-agent or mini-SWE-agent, one file each.

A file (`.traj`, `.traj.json`) is an object with `history` (SWE-agent) or `messages`
(mini-SWE-agent), a list of messages with role and content. Where both are missing, the messages are
put together from `trajectory`: the first step's `query`, then each step's `response` and
`observation`. A session is called by its file's path below the folder.

Messages of a demonstration (`is_demo`) are part of the history but no requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import (
    MESSAGE_OPTIONS,
    Message,
    Session,
    message,
    message_requests,
)
from marconi_sim.trace.importing.format import Format, ImportOptions

_ENDINGS = (".traj", ".traj.json")


def _is_trajectory(path: Path) -> bool:
    return path.name.endswith(_ENDINGS) and path.is_file()


def _files(source: Path) -> list[tuple[str, Path]]:
    """Return (session name, file) in order of the names."""
    files = [source] if source.is_file() else [p for p in source.rglob("*") if _is_trajectory(p)]
    root = source.parent if source.is_file() else source
    named = {path.relative_to(root).as_posix(): path for path in files}
    if not named:
        raise UserError(f"{source}: no file that ends in .traj or .traj.json")
    return [
        (name.removesuffix(".json").removesuffix(".traj"), named[name]) for name in sorted(named)
    ]


def _from_steps(steps: list[Any], path: Path) -> list[Any]:
    """Return the messages of a `trajectory`."""
    messages: list[Any] = []
    for i, step in enumerate(steps):
        if not isinstance(step, dict) or not isinstance(step.get("response"), str):
            raise UserError(f"{path}: trajectory[{i}]: expected a step, an object with response")
        if i == 0 and isinstance(step.get("query"), list):
            messages += step["query"]
        messages.append({"role": "assistant", "content": step["response"]})
        if step.get("observation") is not None:
            messages.append({"role": "user", "content": step["observation"]})
    return messages


def _message(record: Any, place: str) -> Message:
    sent = message(record, place)
    demonstration = record.get("is_demo") or record.get("message_type") == "demonstration"
    return sent._replace(asks=False) if demonstration else sent


def _session(name: str, path: Path) -> Session:
    try:
        record = orjson.loads(readable_file(path, "trajectory").read_bytes())
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}: {type(record).__name__}, expected an object with history")
    for key in ("history", "messages", "trajectory"):
        if isinstance(record.get(key), list) and record[key]:
            messages = record[key]
            break
    else:
        raise UserError(
            f"{path}: no list 'history', 'messages' or 'trajectory' with anything in it"
        )
    if key == "trajectory":
        messages = _from_steps(messages, path)
    return Session(
        name, [_message(m, f"{path}: {key}, message {i}") for i, m in enumerate(messages)]
    )


def read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    """Yield the requests of a folder (or of one file), session by session in order of the names.

    Raises:
        UserError: no trajectory there, or names the first file and message that is not as described
            above.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or directory (trajectories)")
    files = _files(path)
    return message_requests(lambda: (_session(*named) for named in files), options, notes)


def _matches(path: Path, _start: bytes) -> bool:
    if path.is_dir():
        return any(_is_trajectory(p) for p in path.rglob("*"))
    return _is_trajectory(path)


FORMAT = Format(
    name="swe-agent",
    summary="a folder of SWE-agent or mini-SWE-agent trajectories (.traj, .traj.json)",
    options=MESSAGE_OPTIONS,
    matches=_matches,
    read=read,
)
