"""From sessions of messages to requests, the way the paper's traces were made.

Every message is tokenised by itself, as the JSON text of its role, content and tool calls, with a
BOS token in front. One answer of the assistant is one request: its input is everything before it,
its output the answer. Three rules can shorten a session: old observations are dropped from the
history, long inputs end it, and so does a number of turns.

Dropping observations removes whole messages from the middle of the history: the inputs of later
turns no longer begin with the input of the turn before (FIDELITY row G4).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.compiled.trace import session_order
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.tokenizers import ALLOWED, Tokenizer, load_tokenizer

# The options that every format of messages honours.
MESSAGE_OPTIONS = frozenset(
    {"tokenizer", "keep_observations", "max_tokens", "max_turns", "min_rounds", "first_sessions"}
)
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OBSERVING = ("user", "tool", "function")
# Keys of a message that a model sees; times, usage counts and other annotations are not tokenised.
_TOKENISED = (
    "role", "content", "name", "tool_calls", "tool_call_id", "tool_call_ids", "function_call",
)  # fmt: skip
_LEAST = {
    "max_tokens": 1,
    "max_turns": 1,
    "min_rounds": 1,
    "first_sessions": 1,
    "keep_observations": 0,
}


class Message(NamedTuple):
    """One message of a session.

    role: one of `ROLES`.
    seen: the dict that is tokenised.
    asks: whether it is an answer that a model gave, i.e. a request; false for demonstrations.
    words: words of a user's message; -1 for other roles.
    time: seconds, when it was sent; NaN unknown.
    think_time: seconds that its author took, as the source tells it; NaN unknown.
    """

    role: str
    seen: dict[str, Any]
    asks: bool
    words: int = -1
    time: float = math.nan
    think_time: float = math.nan


class Session(NamedTuple):
    """A named list of messages, in order."""

    name: str
    messages: list[Message]


def message(record: Any, place: str) -> Message:
    """Check a dict with `role` and `content` and return it as a message without times.

    `content` may be text, null (an answer that only calls tools) or a list of parts.

    Raises:
        UserError: names `place` and what is wrong.
    """
    if not isinstance(record, dict) or "role" not in record or "content" not in record:
        raise UserError(f"{place}: expected a message, an object with role and content")
    role, content = record["role"], record["content"]
    if role not in ROLES:
        raise UserError(f"{place}: role {role!r}, expected one of: {', '.join(ROLES)}")
    if not isinstance(content, str | list | None):
        raise UserError(
            f"{place}: content is {type(content).__name__}, expected text, null or a list of parts"
        )
    seen = {key: value for key, value in record.items() if key in _TOKENISED}
    words = len(content.split()) if role == "user" and isinstance(content, str) else -1
    return Message(role, seen, role == "assistant", words)


class _Kept(NamedTuple):
    tokens: NDArray[np.int32]
    observation: bool


def _drop_observations(history: list[_Kept], keep: int) -> None:
    """Remove all but the last `keep` observations."""
    places = [i for i, kept in enumerate(history) if kept.observation]
    for i in reversed(places[: max(len(places) - keep, 0)]):
        del history[i]


def _between(messages: list[Message]) -> tuple[int, float, float]:
    """Return (words, think time, last time) of the messages between an answer and the next one."""
    typed = [m.words for m in messages if m.words >= 0]
    thought = [m.think_time for m in messages if not math.isnan(m.think_time)]
    times = [m.time for m in messages if not math.isnan(m.time)]
    return (
        sum(typed) if typed else -1,
        sum(thought) if thought else math.nan,
        times[-1] if times else math.nan,
    )


def _session_requests(
    session: Session, tokenizer: Tokenizer, options: ImportOptions, notes: dict[str, Any]
) -> Iterator[Request]:
    tokens = tokenizer.encode_all([json.dumps(m.seen) for m in session.messages])
    history: list[_Kept] = []
    turn = 0
    since = 0  # first message after the previous answer
    answered = math.nan
    for i, (sent, ids) in enumerate(zip(session.messages, tokens, strict=True)):
        if sent.asks and history:
            if turn == options.max_turns:
                notes["sessions_cut_at_max_turns"] += 1
                return
            if options.keep_observations is not None:
                _drop_observations(history, options.keep_observations)
            parts = [kept.tokens for kept in history]
            input_tokens = sum(part.size for part in parts)
            if options.max_tokens is not None and input_tokens > options.max_tokens:
                notes["sessions_cut_at_max_tokens"] += 1
                return
            words, think_time, arrival = _between(session.messages[since:i])
            if math.isnan(think_time) and not math.isnan(arrival - answered):
                think_time = max(arrival - answered, 0.0)
            yield Request(
                session=session.name,
                turn=turn,
                symbols=np.concatenate([*parts, ids]),
                input_tokens=input_tokens,
                output_tokens=ids.size,
                arrival=arrival,
                think_time=think_time,
                words=words,
            )
            turn += 1
        elif sent.asks:
            notes["answers_without_input"] += 1
        if sent.asks:
            since, answered = i + 1, sent.time
        # The task comes before the first answer: it is not an observation.
        history.append(_Kept(ids, turn > 0 and sent.role in _OBSERVING))


def _rounds(session: Session) -> int:
    """Return how many requests a session makes if nothing shortens it."""
    return sum(m.asks for m in session.messages[1:])


def _with_own_names(sessions: Iterator[Session]) -> Iterator[Session]:
    """Yield the sessions; the second one called `x` becomes `x#2`, and so on."""
    taken: set[str] = set()
    repeats: dict[str, int] = {}
    for session in sessions:
        name = session.name
        while name in taken:
            repeats[session.name] = repeats.get(session.name, 1) + 1
            name = f"{session.name}#{repeats[session.name]}"
        taken.add(name)
        yield session._replace(name=name)


def _first_names(read: Callable[[], Iterator[Session]], options: ImportOptions) -> set[str]:
    """Return the names of the first sessions with enough rounds, in the order of sessions."""
    assert options.first_sessions is not None
    least = options.min_rounds or 1
    names = [s.name for s in _with_own_names(read()) if _rounds(s) >= least]
    if len(names) < options.first_sessions:
        raise UsageError(
            f"first_sessions {options.first_sessions}: the source has {len(names)} sessions of at"
            f" least {least} rounds; give a smaller number"
        )
    return {names[i] for i in session_order(names)[: options.first_sessions]}


def _check(options: ImportOptions) -> str:
    """Return the tokenizer's name after checking that every number is in its range."""
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"{name} {value}: must be at least {least}")
    if options.tokenizer is None:
        raise UsageError(f"tokenizer: messages need one; give {ALLOWED}")
    return options.tokenizer


def message_requests(
    read: Callable[[], Iterator[Session]],
    options: ImportOptions,
    notes: dict[str, Any],
    rules: Mapping[str, Any] | None = None,
) -> Iterator[Request]:
    """Yield the requests of sessions, session by session; each message is tokenised once.

    Args:
        read: gives the sessions from the beginning each time it is called; twice if only the first
            ones are wanted. Two sessions with one name are two sessions: the second is renamed.
        options: those in `MESSAGE_OPTIONS`. A session counts for `min_rounds` before anything
            shortens it, and `first_sessions` counts those that pass.
        notes: gets the tokenizer, how messages become tokens, and counts of what was left out.
        rules: further notes of the reader.

    Raises:
        UsageError: no tokenizer, an unknown one, or a number out of its range.
        UserError: as `read` raises it.
    """
    tokenizer = load_tokenizer(_check(options))
    notes |= {
        "tokenizer": tokenizer.identity,
        "tokens": "each message alone, as JSON of its role, content and tool calls, after BOS",
        "sessions_read": 0,
        "sessions_with_too_few_rounds": 0,
        "sessions_cut_at_max_tokens": 0,
        "sessions_cut_at_max_turns": 0,
        "answers_without_input": 0,
        **(rules or {}),
    }
    chosen = None if options.first_sessions is None else _first_names(read, options)
    for session in _with_own_names(read()):
        notes["sessions_read"] += 1
        if _rounds(session) < (options.min_rounds or 1):
            notes["sessions_with_too_few_rounds"] += 1
        elif chosen is None or session.name in chosen:
            yield from _session_requests(session, tokenizer, options, notes)
