"""WEKA's Claude Code traces: a session a line, its requests as ids of 64-token blocks local to it.

    {"id": "trace_0014", "block_size": 64, "tool_tokens": 12319, "system_tokens": 2882,
     "requests": [{"t": 12.0, "in": 15874, "out": 153, "hash_ids": [1, 2, ... 248],
                   "think_time": 6.0, "api_time": 5.6, ...}]}

`t` is in seconds from the session's start. There is one id for every block that the input fills;
what is left of the input has none. A request of type `subagent` holds the requests of an agent of
its own, `t` counted from its start; it is read as a session of its own, `trace_0014/agent_001`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import NONE
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.continuations import continued_by, sequences
from marconi_sim.trace.importing.fields import (
    LONGEST_SEQUENCE,
    block_ids,
    block_size,
    number,
    optional_number,
    required,
    text,
    whole_number,
)
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_json_lines

DEFAULT_BLOCK = 64


@dataclass(frozen=True)
class _Call:
    """One request; `ids` are those of the full blocks, local to the session."""

    ids: NDArray[np.int64]
    input_tokens: int
    output_tokens: int
    arrival: float
    think_time: float


@dataclass(frozen=True)
class _Agent:
    """A session, or a subagent of one; `head` is (tool tokens, system tokens)."""

    name: str
    head: tuple[int, int]
    calls: list[_Call]


def _call(record: dict[str, Any], place: str, block: int, start: float) -> _Call:
    input_tokens = whole_number(record, "in", place, 1)
    output_tokens = whole_number(record, "out", place, 0)
    ids = block_ids(record, "hash_ids", place)
    if ids.size != input_tokens // block:
        raise UserError(
            f"{place}: {ids.size} hash_ids, but 'in' {input_tokens} fills"
            f" {input_tokens // block} blocks of"
            f" {block} tokens; wrong block size? give the file's with --block-size"
        )
    if input_tokens + output_tokens > LONGEST_SEQUENCE:
        raise UserError(
            f"{place}: in + out is {input_tokens + output_tokens}, allowed are {LONGEST_SEQUENCE}"
        )
    arrival = start + number(record, "t", place)
    think_time = optional_number(record, "think_time", place)
    return _Call(ids, input_tokens, output_tokens, arrival, think_time)


def _agents(
    record: dict[str, Any], name: str, place: str, block: int, start: float
) -> Iterator[_Agent]:
    """Yield a session and the subagents inside it."""
    requests = required(record, "requests", place)
    if not isinstance(requests, list) or not all(isinstance(r, dict) for r in requests):
        raise UserError(f"{place}: requests is not a list of JSON objects")
    head = (
        whole_number(record, "tool_tokens", place, 0),
        whole_number(record, "system_tokens", place, 0),
    )
    calls, nested = [], []
    for i, request in enumerate(requests):
        where = f"{place}: requests[{i}]"
        if request.get("type") == "subagent":
            agent = f"{name}/{text(request, 'agent_id', where)}"
            nested.append((request, agent, where, block, start + number(request, "t", where)))
        else:
            calls.append(_call(request, where, block, start))
    if calls:
        yield _Agent(name, head, calls)
    for arguments in nested:
        yield from _agents(*arguments)


def _head_ids(agent: _Agent, block: int) -> NDArray[np.int64]:
    """Return the local ids of the full blocks of the agent's tools and system prompt."""
    return agent.calls[0].ids[: sum(agent.head) // block]


class _GlobalIds:
    """Gives sessions, common heads and partly filled last blocks ids that differ."""

    def __init__(self, block: int, shared_heads: bool) -> None:
        self._block = block
        self._shared_heads = shared_heads
        self._next = 0
        self._heads: dict[tuple[int, int], NDArray[np.int64]] = {}
        self.head_uses: Counter[tuple[int, int]] = Counter()

    def _take(self, count: int) -> NDArray[np.int64]:
        self._next += count
        return np.arange(self._next - count, self._next)

    def of_session(self, agents: list[_Agent]) -> list[list[NDArray[np.int64]]]:
        """Return the ids of the blocks that each input touches, by agent and call of a session."""
        local = np.unique(np.concatenate([call.ids for agent in agents for call in agent.calls]))
        known = self._take(local.size)
        for agent in agents if self._shared_heads else ():
            head = _head_ids(agent, self._block)
            shared = self._heads.get(agent.head, np.empty(0, np.int64))
            if shared.size < head.size:
                shared = np.concatenate([shared, self._take(head.size - shared.size)])
                self._heads[agent.head] = shared
            known[np.searchsorted(local, head)] = shared[: head.size]
            self.head_uses[agent.head] += 1
        result = []
        for agent in agents:
            tails = [
                self._take(1 if call.input_tokens % self._block else 0) for call in agent.calls
            ]
            ids = [known[np.searchsorted(local, call.ids)] for call in agent.calls]
            result.append([np.concatenate(parts) for parts in zip(ids, tails, strict=True)])
        return result


def _requests(agent: _Agent, blocks: list[NDArray[np.int64]], block: int) -> Iterator[Request]:
    """Yield the requests of one agent, with continuations inferred among them."""
    input_tokens = np.array([call.input_tokens for call in agent.calls], np.int64)
    output_tokens = np.array([call.output_tokens for call in agent.calls], np.int64)
    arrival = np.array([call.arrival for call in agent.calls])
    full = [ids[: call.ids.size] for ids, call in zip(blocks, agent.calls, strict=True)]
    successor = continued_by(full, input_tokens, output_tokens, arrival)
    symbols = sequences(blocks, input_tokens, output_tokens, successor, block)
    for turn, call in enumerate(agent.calls):
        yield Request(
            session=agent.name,
            turn=turn,
            symbols=symbols[turn],
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            output_known=bool(successor[turn] != NONE),
            arrival=call.arrival,
            think_time=call.think_time,
        )


def _write_notes(notes: dict[str, Any], ids: _GlobalIds, block: int, counts: Counter[str]) -> None:
    notes["block_size"] = block
    notes["continuations"] = (
        f"continuations inferred: {counts['continued']} of {counts['requests']} requests are"
        " continued by a later one of their session; the log does not show outputs. Where none is"
        " inferred, often because the answer's thinking"
        " is not sent back, the output is taken to be unlike any other sequence"
    )
    shared = {head: uses for head, uses in ids.head_uses.items() if uses > 1}
    notes["shared_heads"] = (
        f"modelled: {sum(shared.values())} of {counts['sessions']} sessions have tool and system"
        f" prompts as long as another session's and are given {len(shared)} common heads;"
        " ids in the log are local to a session"
        if ids.head_uses
        else "none: no two sessions share a block, as ids in the log are local to a session"
    )
    notes["subagents"] = f"{counts['subagents']} subagents are sessions of their own"
    notes["arrivals"] = (
        "seconds from the start of each session, since the log does not tell when sessions started;"
        " think_time is the log's own"
    )


def _read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    block = block_size(options, DEFAULT_BLOCK)
    ids = _GlobalIds(block, options.shared_heads is not False)
    counts: Counter[str] = Counter()
    names: set[str] = set()
    notes["block_size"] = block
    for line, record in read_json_lines(path):
        place = f"{path}:{line}"
        name = text(record, "id", place)
        if record.get("block_size", block) != block:
            raise UserError(
                f"{place}: block_size is {record['block_size']}, read with {block};"
                f" give --block-size {record['block_size']}"
            )
        agents = list(_agents(record, name, place, block, 0.0))
        for agent in agents:
            if agent.name in names:
                raise UserError(
                    f"{place}: session '{agent.name}' is there twice; names must differ"
                )
            names.add(agent.name)
        counts["subagents"] += sum(agent.name != name for agent in agents)
        for agent, blocks in zip(agents, ids.of_session(agents) if agents else (), strict=True):
            counts["sessions"] += 1
            for request in _requests(agent, blocks, block):
                counts["requests"] += 1
                counts["continued"] += request.output_known
                yield request
    _write_notes(notes, ids, block, counts)


def _matches(path: Path, head: bytes) -> bool:
    start = head.lstrip()
    return start.startswith(b"{") and all(
        key in head for key in (b'"tool_tokens"', b'"system_tokens"', b'"requests"', b'"hash_ids"')
    )


FORMAT = Format(
    name="weka",
    summary="JSONL of sessions with block hashes local to each (WEKA Claude Code); 64-token blocks",
    options=frozenset({"block_size", "shared_heads"}),
    matches=_matches,
    read=_read,
)
