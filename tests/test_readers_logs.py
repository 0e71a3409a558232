"""The readers of API logs: sessions, answers and times, and damaged lines."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.compile_source import import_trace
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format, format_named

BYTES = ImportOptions(tokenizer="bytes")


def jsonl(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(path: Path, name: str) -> tuple[list[Request], dict[str, Any]]:
    notes: dict[str, Any] = {}
    return list(format_named(name, BYTES).read(path, BYTES, notes)), notes


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def response(message: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"message": message}]}


def tokens(*messages: dict[str, Any]) -> list[int]:
    return [t for m in messages for t in [256, *json.dumps(m).encode()]]


# openai-log


def test_openai_log_is_read(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "o.jsonl",
        {"created": 100, "messages": [user("a b")], "response": response(answer("x"))},
        {"created": 160, "messages": [user("a b"), answer("x"), user("c")], "output": "y"},
        {"created": 130, "messages": [user("q")], "completion": answer("z")},
    )
    found, notes = read(path, "openai-log")
    assert [(r.session, r.turn, r.arrival, r.words) for r in found] == [
        ("0", 0, 0.0, 2),
        ("1", 0, 30.0, 1),
        ("0", 1, 60.0, 1),
    ]
    assert found[0].symbols.tolist() == tokens(user("a b"), answer("x"))
    assert found[2].symbols.tolist() == tokens(user("a b"), answer("x"), user("c"), answer("y"))
    assert found[2].input_tokens == len(tokens(user("a b"), answer("x"), user("c")))
    assert notes["sessions_inferred"] == 2
    assert notes["sessions"].startswith("inferred")
    assert notes["answers_unknown"] == 0


def test_openai_log_named_sessions_are_kept(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "o.jsonl",
        {"ts": 1, "session_id": "0", "messages": [user("a")], "output": "x"},
        {"ts": 2, "session_id": "0", "messages": [user("other")], "output": "x"},
        {"ts": 3, "messages": [user("b")], "output": "x"},
    )
    found, notes = read(path, "openai-log")
    assert [(r.session, r.turn) for r in found] == [("0", 0), ("0", 1), ("1", 0)]
    assert notes["sessions_inferred"] == 1


def test_openai_log_answers_may_be_found_in_later_calls(tmp_path: Path) -> None:
    usage = {"usage": {"completion_tokens": 7}}
    path = jsonl(
        tmp_path / "o.jsonl",
        {"ts": 1, "messages": [user("a")]} | usage,
        {"ts": 2, "messages": [user("a"), answer("x"), user("b")]} | usage,
        {"ts": 3, "messages": [user("lonely")]},
    )
    found, notes = read(path, "openai-log")
    assert found[0].symbols.tolist() == tokens(user("a"), answer("x"))
    assert found[0].output_known
    assert (found[1].session, found[1].turn) == (found[0].session, 1)
    assert (found[1].output_known, found[1].output_tokens) == (False, 7)
    assert (found[2].output_known, found[2].output_tokens) == (False, 0)
    assert (notes["answers_found_in_later_calls"], notes["answers_unknown"]) == (1, 2)


def test_openai_log_absent_values_and_order_of_keys_do_not_matter(tmp_path: Path) -> None:
    said = {"content": None, "tool_calls": [{"id": "1"}], "refusal": None, "role": "assistant"}
    repeated = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    path = jsonl(
        tmp_path / "o.jsonl",
        {"ts": 1, "messages": [user("a")], "response": response(said)},
        {"ts": 2, "messages": [user("a"), repeated, user("b")], "output": "x"},
    )
    found, _ = read(path, "openai-log")
    assert [(r.session, r.turn) for r in found] == [("0", 0), ("0", 1)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1760428436, 1760428437.5),
        (1760428436000, 1760428437500),
        (1760428436000000, 1760428437500000),
        (1760428436000000000, 1760428437500000000),
        ("2025-10-14T07:53:56Z", "2025-10-14T09:53:57.500+02:00"),
        ("2025-10-14T07:53:56", "2025-10-14T07:53:57.5Z"),
        (0, 1.5),
    ],
)
def test_openai_log_units_of_time(tmp_path: Path, first: Any, second: Any) -> None:
    path = jsonl(
        tmp_path / "o.jsonl",
        {"timestamp": first, "messages": [user("a")], "output": "x"},
        {"timestamp": second, "messages": [user("b")], "output": "x"},
    )
    found, _ = read(path, "openai-log")
    assert [r.arrival for r in found] == [0.0, pytest.approx(1.5, abs=1e-6)]
    assert all(math.isnan(r.think_time) for r in found)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"messages": [user("a")]}, "no time; a call needs one of: timestamp, created, ts"),
        ({"ts": -1, "messages": [user("a")]}, "ts is -1"),
        ({"ts": True, "messages": [user("a")]}, "ts is True"),
        ({"ts": "noon", "messages": [user("a")]}, "ts is 'noon', expected a number or ISO 8601"),
        ({"ts": 1, "messages": []}, "messages: expected a list of at least one message"),
        ({"ts": 1}, "messages: expected a list"),
        ({"ts": 1, "messages": [{"role": "user"}]}, r"messages\[0\]: expected a message"),
        ({"ts": 1, "messages": [{"role": "robot", "content": ""}]}, "role 'robot'"),
        ({"ts": 1, "messages": [user("a")], "response": {}}, r"no choices\[0\].message"),
        ({"ts": 1, "messages": [user("a")], "output": 5}, "answer: expected a message"),
        ({"ts": 1, "messages": [user("a")], "session_id": [1]}, "session_id is"),
        (
            {"ts": 1, "messages": [user("a")], "usage": {"completion_tokens": -3}},
            "completion_tokens",
        ),
    ],
)
def test_openai_log_bad_values_name_the_line(tmp_path: Path, record: Any, text: str) -> None:
    path = jsonl(tmp_path / "o.jsonl", {"ts": 1, "messages": [user("a")], "output": "x"}, record)
    with pytest.raises(UserError, match=rf"o\.jsonl:2: {text}|o\.jsonl:2: .*{text}"):
        read(path, "openai-log")


def test_a_number_and_text_of_one_session_are_refused(tmp_path: Path) -> None:
    calls = [{"ts": 1, "messages": [user("a")], "session_id": s} for s in (None, 7, "7")]
    with pytest.raises(
        UserError, match=r'o\.jsonl:3: session_id is "7", but at .*o\.jsonl:2 it is 7'
    ):
        read(jsonl(tmp_path / "o.jsonl", *calls), "openai-log")
    with pytest.raises(
        UserError, match=r'l\.jsonl:2: session_id is 7, but at .*l\.jsonl:1 it is "7"'
    ):
        read(jsonl(tmp_path / "l.jsonl", lm(1, "a", "x", "7"), lm(2, "b", "x", 7)), "lmcache")


def test_openai_log_needs_a_tokenizer(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "o.jsonl", {"ts": 1, "messages": [user("a")]})
    with pytest.raises(UsageError, match="tokenizer: messages need one"):
        list(format_named("openai-log", ImportOptions()).read(path, ImportOptions(), {}))


# lmcache


def lm(time: int, given: str, said: str, session: Any = "s") -> dict[str, Any]:
    return {"timestamp": time, "input": given, "output": said, "session_id": session}


def test_lmcache_puts_the_answers_back(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "l.jsonl",
        lm(3_000_000, "task\n\nresult", "second"),
        lm(1_000_000, "task", "first"),
        lm(2_000_000, "task", "elsewhere", session=7),
    )
    assert detect_format(path).name == "lmcache"
    found, notes = read(path, "lmcache")
    assert [(r.session, r.turn, r.arrival) for r in found] == [
        ("s", 0, 0.0),
        ("7", 0, 1.0),
        ("s", 1, 2.0),
    ]
    assert found[2].symbols.tolist() == tokens(
        user("task"), answer("first"), user("result"), answer("second")
    )
    assert notes["conversations"].startswith("inferred")
    assert notes["inputs_that_extend_no_earlier_one"] == 0


def test_lmcache_an_input_that_extends_nothing_starts_afresh(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "l.jsonl", lm(1, "task", "first"), lm(2, "other", "second"))
    found, notes = read(path, "lmcache")
    assert found[1].symbols.tolist() == tokens(user("other"), answer("second"))
    assert notes["inputs_that_extend_no_earlier_one"] == 1


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (lm(1, "", "x"), "input is empty"),
        (lm(1, "a", "x") | {"timestamp": 1.5}, "timestamp is 1.5, expected whole microseconds"),
        (lm(1, "a", "x") | {"output": None}, "output is NoneType"),
        ({"timestamp": 1, "input": "a", "output": "x"}, "'session_id' is missing"),
    ],
)
def test_lmcache_bad_values_name_the_line(tmp_path: Path, record: Any, text: str) -> None:
    path = jsonl(tmp_path / "l.jsonl", lm(1, "a", "x"), record)
    with pytest.raises(UserError, match=rf"l\.jsonl:2: {text}"):
        read(path, "lmcache")


def test_lmcache_agent_log(shared: Path) -> None:
    path = shared / "data/sessions/miniswe_openai_log.jsonl.gz"
    trace = import_trace(path, format_named("lmcache", BYTES), BYTES, {})
    assert (trace.requests, len(trace.session_names)) == (402, 20)
    assert trace.provenance["inputs_that_extend_no_earlier_one"] == 0
    # Every later turn's input goes on from the sequence of the turn before it.
    for session in range(20):
        rows = [i for i in range(402) if trace.session[i] == session]
        for before, after in pairwise(rows):
            node = int(trace.input_node[after])
            while trace.depth[node] > trace.depth[trace.end_node[before]]:
                node = int(trace.parent[node])
            assert node == trace.end_node[before]
