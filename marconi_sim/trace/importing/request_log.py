"""From logged calls of a chat API to requests; a call comes with all its messages.

A log repeats a session's history in every call. Each message is tokenised once, as the JSON text of
what the model sees with a BOS token in front, as the converter of message traces does; a call is
then a list of message numbers. Which call continues which follows from a tree over those numbers: a
call whose messages begin with the messages and the answer of an earlier call continues it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import Message
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.tokenizers import ALLOWED, Tokenizer, load_tokenizer


@dataclass(frozen=True)
class Call:
    """One call of a model.

    Attributes:
        time: seconds on any clock.
        messages: its input, at least one.
        answer: its output; None if the log does not show it.
        answer_tokens: tokens of an answer that is not shown; 0 if the log does not tell.
        session: the session that the log names; None if it names none.
    """

    time: float
    messages: list[Message]
    answer: Message | None
    answer_tokens: int = 0
    session: str | None = None


@dataclass
class _Numbered:
    """A call with numbers for messages, and how it continues an earlier call."""

    time: float
    messages: list[int]
    answer: int | None
    answer_tokens: int
    session: str | None
    turn: int = 0
    new_from: int = 0  # the first message that is not part of the call it continues


class _MessageTable:
    """Numbers messages; equal ones have one number. Tokenises each once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers: dict[str, int] = {}
        self.tokens: list[NDArray[np.int32]] = []
        self.words: list[int] = []
        self.is_answer: list[bool] = []

    def number(self, message: Message) -> int:
        # Clients write an absent value as null or not at all, and keys in any order.
        seen = {"role": message.role, "content": message.seen["content"]}
        seen |= {k: v for k, v in sorted(message.seen.items()) if v is not None and k not in seen}
        text = json.dumps(seen)
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.tokens)
            self.tokens.append(self._tokenizer.encode(text))
            self.words.append(message.words)
            self.is_answer.append(message.role == "assistant")
        return known


class _Conversations:
    """A tree over message numbers that knows where calls end."""

    def __init__(self, table: _MessageTable) -> None:
        self._table = table
        self._children: dict[tuple[int, int], int] = {}
        self._ended: dict[int, _Numbered] = {}  # behind the answer
        self._unanswered: dict[int, _Numbered] = {}  # behind the messages of a call without one

    def _child(self, node: int, message: int) -> int:
        return self._children.setdefault((node, message), len(self._children) + 1)

    def add(self, call: _Numbered) -> _Numbered | None:
        """Take the next call in order of time; return the call that it continues."""
        node = 0
        before: _Numbered | None = None
        for position, message in enumerate(call.messages):
            waiting = self._unanswered.get(node)
            if waiting is not None and self._table.is_answer[message]:
                del self._unanswered[node]
                waiting.answer = message
                self._ended[self._child(node, message)] = waiting
            node = self._child(node, message)
            if node in self._ended:
                before, call.new_from = self._ended[node], position + 1
        if call.answer is None:
            self._unanswered[node] = call
        else:
            self._ended[self._child(node, call.answer)] = call
        return before


def _give_sessions(calls: list[_Numbered], table: _MessageTable) -> int:
    """Set session, turn and `new_from` of calls in order of time; count inferred sessions."""
    conversations = _Conversations(table)
    named = {call.session for call in calls if call.session is not None}
    turns: Counter[str] = Counter()
    inferred = 0
    fresh = 0
    for call in calls:
        before = conversations.add(call)
        if call.session is None and before is not None:
            call.session = before.session
        elif call.session is None:
            while str(fresh) in named:
                fresh += 1
            call.session = str(fresh)
            fresh += 1
            inferred += 1
        assert call.session is not None
        call.turn = turns[call.session]
        turns[call.session] += 1
    return inferred


def _request(call: _Numbered, start: float, table: _MessageTable) -> Request:
    parts = [table.tokens[m] for m in call.messages]
    input_tokens = sum(part.size for part in parts)
    output_tokens = call.answer_tokens
    if call.answer is not None:
        parts.append(table.tokens[call.answer])
        output_tokens = parts[-1].size
    typed = [w for w in (table.words[m] for m in call.messages[call.new_from :]) if w >= 0]
    assert call.session is not None
    return Request(
        session=call.session,
        turn=call.turn,
        symbols=np.concatenate(parts),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        output_known=call.answer is not None,
        arrival=call.time - start,
        words=sum(typed) if typed else -1,
    )


def log_requests(
    calls: Iterable[Call], options: ImportOptions, notes: dict[str, Any]
) -> Iterator[Request]:
    """Yield the requests of a log in order of time; memory is that of the distinct messages.

    Args:
        calls: in any order.
        options: `tokenizer` is used.
        notes: gets the tokenizer, how sessions came about, and what is not known.

    Raises:
        UsageError: no tokenizer, or an unknown one.
    """
    if options.tokenizer is None:
        raise UsageError(f"tokenizer: messages need one; give {ALLOWED}")
    tokenizer = load_tokenizer(options.tokenizer)
    table = _MessageTable(tokenizer)
    numbered = [
        _Numbered(
            time=call.time,
            messages=[table.number(m) for m in call.messages],
            answer=None if call.answer is None else table.number(call.answer),
            answer_tokens=call.answer_tokens,
            session=call.session,
        )
        for call in calls
    ]
    numbered.sort(key=lambda call: call.time)
    shown = sum(call.answer is not None for call in numbered)
    inferred = _give_sessions(numbered, table)
    unknown = sum(call.answer is None for call in numbered)
    notes |= {
        "tokenizer": tokenizer.identity,
        "tokens": "each message by itself, as JSON of what the model sees, BOS in front",
        "sessions_inferred": inferred,
        "answers_found_in_later_calls": len(numbered) - shown - unknown,
        "answers_unknown": unknown,
        "arrivals": "seconds since the first call of the log",
    }
    if inferred:
        notes["sessions"] = (
            "inferred where the log names none: a call whose messages begin with an earlier call's"
            " messages and answer continues its session"
        )
    if unknown:
        notes["outputs"] = (
            "an answer that the log does not show is taken to be unlike any other sequence"
        )
    start = min((call.time for call in numbered), default=math.nan)
    for call in numbered:
        yield _request(call, start, table)
