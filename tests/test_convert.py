"""From messages to requests: what is tokenised, what is dropped, where sessions end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import Message, Session, message, message_requests
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.tokenizers import load_tokenizer

BYTES = load_tokenizer("bytes")


def tokens_of(*records: dict[str, Any]) -> list[int]:
    """What the rules say, spelled out: JSON text of each message after a BOS."""
    return [t for record in records for t in [256, *json.dumps(record).encode()]]


def session(name: str, *turns: tuple[str, str]) -> Session:
    return Session(name, [message({"role": r, "content": c}, "here") for r, c in turns])


def agent(name: str, turns: int) -> Session:
    """A session with a system prompt, a task, and one observation after each answer."""
    turned = [("assistant" if i % 2 == 0 else "user", f"{i}") for i in range(2 * turns - 1)]
    return session(name, ("system", "s"), ("user", "task"), *turned)


def convert(
    *sessions: Session, notes: dict[str, Any] | None = None, **options: Any
) -> list[Request]:
    def read() -> Iterator[Session]:
        return iter(sessions)

    chosen = ImportOptions(tokenizer="bytes", **options)
    return list(message_requests(read, chosen, {} if notes is None else notes))


def test_an_answer_is_a_request_and_everything_before_it_is_its_input() -> None:
    records = [
        {"role": role, "content": content}
        for role, content in [
            ("system", "s"), ("user", "é q"), ("assistant", "a"), ("user", "r"), ("assistant", "b"),
        ]
    ]  # fmt: skip
    first, second = convert(Session("x", [message(r, "here") for r in records]))
    assert first.symbols.tolist() == tokens_of(*records[:3])
    assert first.input_tokens == len(tokens_of(*records[:2]))
    assert first.input_tokens + first.output_tokens == first.symbols.size
    assert second.symbols.tolist() == tokens_of(*records)
    assert (first.turn, second.turn) == (0, 1)


def test_only_what_a_model_sees_is_tokenised() -> None:
    record = {
        "role": "assistant", "ts": 3, "content": None, "tool_calls": [{"id": "c"}],
        "in_tokens": 7, "elapsed_min": 1, "model": "m",
    }  # fmt: skip
    seen = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    user = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    (request,) = convert(Session("x", [message(user, "here"), message(record, "here")]))
    assert request.symbols.tolist() == tokens_of(user, seen)


def test_words_are_those_the_user_typed_since_the_previous_answer() -> None:
    requests = convert(
        session(
            "x",
            ("system", "not these words"),
            ("user", "two  words"),
            ("user", "and\nthree more"),
            ("assistant", "a"),
            ("tool", "no words of a user"),
            ("assistant", "b"),
            ("assistant", "c"),
        )
    )
    assert [r.words for r in requests] == [5, -1, -1]


def test_an_answer_without_input_is_history_but_no_request() -> None:
    notes: dict[str, Any] = {}
    (request,) = convert(
        session("x", ("assistant", "lost"), ("user", "q"), ("assistant", "a")), notes=notes
    )
    assert request.turn == 0
    assert request.input_tokens == len(
        tokens_of({"role": "assistant", "content": "lost"}, {"role": "user", "content": "q"})
    )
    assert notes["answers_without_input"] == 1


def test_a_demonstration_is_history_but_no_request() -> None:
    messages = session("x", ("user", "demo"), ("assistant", "shown"), *[("user", "task")]).messages
    messages[1] = messages[1]._replace(asks=False)
    messages += session("x", ("assistant", "a")).messages
    (request,) = convert(Session("x", messages))
    assert request.output_tokens == len(tokens_of({"role": "assistant", "content": "a"}))


def common_prefix(a: Request, b: Request) -> int:
    n = min(a.symbols.size, b.symbols.size)
    different = np.flatnonzero(a.symbols[:n] != b.symbols[:n])
    return int(different[0]) if different.size else n


def test_histories_diverge_from_turn_seven_on_when_five_observations_are_kept() -> None:
    whole, kept = convert(agent("x", 9)), convert(agent("x", 9), keep_observations=5)
    for turn in range(6):
        assert kept[turn].symbols.tolist() == whole[turn].symbols.tolist()
    for turn in range(6, 9):
        # The oldest observation that is left out goes whole; task and all answers stay.
        records = [{"role": "system", "content": "s"}, {"role": "user", "content": "task"}]
        for i in range(2 * turn + 1):
            observation = i % 2 == 1
            if not observation or i // 2 >= turn - 5:
                records.append({"role": "user" if observation else "assistant", "content": str(i)})
        assert kept[turn].symbols.tolist() == tokens_of(*records)
        assert common_prefix(kept[turn - 1], kept[turn]) < kept[turn - 1].input_tokens


def test_tool_messages_are_observations_and_zero_of_them_can_be_kept() -> None:
    requests = convert(
        session(
            "x",
            ("user", "task"),
            ("assistant", "a"),
            ("tool", "o"),
            ("assistant", "b"),
            ("user", "o2"),
            ("assistant", "c"),
        ),
        keep_observations=0,
    )
    assert requests[2].symbols.tolist() == tokens_of(
        {"role": "user", "content": "task"},
        *({"role": "assistant", "content": c} for c in "abc"),
    )


def test_a_session_ends_before_the_first_input_that_is_too_long() -> None:
    lengths = [r.input_tokens for r in convert(agent("x", 5))]
    notes: dict[str, Any] = {}
    at = convert(agent("x", 5), agent("y", 2), max_tokens=lengths[3], notes=notes)
    assert [r.input_tokens for r in at if r.session == "x"] == lengths[:4]
    assert len([r for r in at if r.session == "y"]) == 2
    assert notes["sessions_cut_at_max_tokens"] == 1
    below = convert(agent("x", 5), max_tokens=lengths[3] - 1)
    assert [r.input_tokens for r in below] == lengths[:3]


def test_a_session_ends_after_max_turns_and_counts_as_cut_only_if_it_had_more() -> None:
    notes: dict[str, Any] = {}
    requests = convert(agent("x", 3), agent("y", 2), max_turns=2, notes=notes)
    assert [(r.session, r.turn) for r in requests] == [("x", 0), ("x", 1), ("y", 0), ("y", 1)]
    assert notes["sessions_cut_at_max_turns"] == 1


def test_min_rounds_counts_requests_before_anything_shortens_the_session() -> None:
    notes: dict[str, Any] = {}
    broken_off = session("z", ("assistant", "0"), ("user", "q"), ("assistant", "1"))
    requests = convert(
        agent("x", 3), agent("y", 1), broken_off, min_rounds=2, max_turns=1, notes=notes
    )
    assert [r.session for r in requests] == ["x"]
    assert (notes["sessions_read"], notes["sessions_with_too_few_rounds"]) == (3, 2)


def test_first_sessions_are_the_first_by_name_among_those_with_enough_rounds() -> None:
    sessions = [agent("d", 2), agent("b", 1), agent("c", 2), agent("a", 2)]
    names = [r.session for r in convert(*sessions, first_sessions=2, min_rounds=2, max_turns=1)]
    assert names == ["c", "a"]
    numbers = [r.session for r in convert(agent("10", 1), agent("9", 1), first_sessions=1)]
    assert numbers == ["9"]
    with pytest.raises(
        UsageError, match="first_sessions 4: the source has 3 sessions of at least 2"
    ):
        convert(*sessions, first_sessions=4, min_rounds=2)


def test_sessions_with_one_name_stay_apart() -> None:
    names = [
        r.session for r in convert(agent("x", 1), agent("x#2", 1), agent("x", 1), agent("x", 1))
    ]
    assert names == ["x", "x#2", "x#3", "x#4"]


def timed(role: str, time: float = math.nan, think: float = math.nan) -> Message:
    return message({"role": role, "content": "c"}, "here")._replace(time=time, think_time=think)


def test_times_give_arrivals_and_think_times() -> None:
    requests = convert(
        Session(
            "x",
            [
                timed("user", 10), timed("assistant", 12), timed("user", 15), timed("tool", 16),
                timed("assistant", 20), timed("user", 19), timed("assistant"), timed("user", 30),
                timed("assistant", 31),
            ],
        )
    )  # fmt: skip
    assert [r.arrival for r in requests] == [10, 16, 19, 30]
    np.testing.assert_equal([r.think_time for r in requests], [np.nan, 4, 0, np.nan])


def test_a_think_time_of_the_source_wins() -> None:
    requests = convert(
        Session(
            "x", [timed("user", 1), timed("assistant", 2), timed("user", 9, 3), timed("assistant")]
        )
    )
    assert requests[1].think_time == 3


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("text", "expected a message"),
        ({"role": "user"}, "expected a message"),
        ({"role": "robot", "content": ""}, "role 'robot', expected one of"),
        ({"role": ["user"], "content": ""}, "role .* expected one of"),
        ({"role": "user", "content": 3}, "content is int"),
        ({"role": "user", "content": {}}, "content is dict"),
    ],
)
def test_a_bad_message_is_named(record: Any, problem: str) -> None:
    with pytest.raises(UserError, match=f"here: {problem}"):
        message(record, "here")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 0), ("max_turns", 0), ("min_rounds", 0), ("first_sessions", 0),
     ("keep_observations", -1)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{name} {value}: must be at least"):
        convert(agent("x", 1), **{name: value})


def test_a_tokenizer_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="tokenizer: messages need one; give 'bytes'"):
        list(message_requests(lambda: iter([]), ImportOptions(), {}))
