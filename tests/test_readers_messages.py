"""The readers of messages: files of each layout, what they become, and damaged ones."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.compile_source import import_trace
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format, format_named
from marconi_sim.trace.importing.json_array import read_json_array

OPTIONS = ImportOptions(tokenizer="bytes")
CHAT = [("user", "one two"), ("assistant", "yes"), ("user", "three"), ("assistant", "no")]
MESSAGES = [{"role": role, "content": text} for role, text in CHAT]
SHARED_GPT = [{"from": "human" if role == "user" else "gpt", "value": text} for role, text in CHAT]


def read(path: Path, name: str | None = None, **notes: Any) -> list[Request]:
    """Read a file in the format that it looks like, which must be `name` if that is given."""
    found = detect_format(path)
    assert name is None or found.name == name
    return list(found.read(path, OPTIONS, notes))


def read_as(path: Path, name: str) -> list[Request]:
    return list(format_named(name, OPTIONS).read(path, OPTIONS, {}))


def jsonl(path: Path, *records: Any) -> Path:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def expected(count: int = 1) -> list[list[int]]:
    """Symbols of the requests of `count` chats."""
    texts = [json.dumps(m).encode() for m in MESSAGES]
    both = [[256, *texts[0], 256, *texts[1]], [t for text in texts for t in [256, *text]]]
    return both * count


def symbols(requests: list[Request]) -> list[list[int]]:
    return [r.symbols.tolist() for r in requests]


# messages


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_messages_one_session_a_line(tmp_path: Path, ending: str) -> None:
    path = jsonl(
        tmp_path / f"t.{ending}",
        {"session_id": "a", "meta": {"x": 1}, "messages": MESSAGES},
        {"session_id": 7, "messages": MESSAGES},
        {"messages": MESSAGES},
    )
    requests = read(path, "messages")
    assert symbols(requests) == expected(3)
    assert [r.session for r in requests[::2]] == ["a", "7", "3"]
    assert [r.words for r in requests[:2]] == [2, 1]


def test_messages_times_in_text_or_seconds(tmp_path: Path) -> None:
    times = ["1970-01-01T00:01:00Z", "1970-01-01T00:01:10.5", 80, "1970-01-01T01:01:30+01:00"]
    timed = [m | {"ts": t} for m, t in zip(MESSAGES, times, strict=True)]
    first, second = read(jsonl(tmp_path / "t.jsonl", {"session_id": 0, "messages": timed}))
    assert (first.arrival, second.arrival) == (60.0, 80.0)
    assert second.think_time == 9.5
    assert symbols([first, second]) == expected()


def test_messages_minutes_of_thinking(tmp_path: Path) -> None:
    timed = [MESSAGES[0] | {"elapsed_min": "0.5"}, MESSAGES[1], MESSAGES[2] | {"elapsed_min": 2}]
    timed.append(MESSAGES[3])
    requests = read(jsonl(tmp_path / "t.jsonl", {"session_id": 0, "messages": timed}))
    assert [r.think_time for r in requests] == [30.0, 120.0]
    assert np.isnan([r.arrival for r in requests]).all()


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"session_id": 0, "messages": "text"}, "no list 'messages'"),
        ({"session_id": 0}, "no list 'messages'"),
        ({"session_id": 1.5, "messages": MESSAGES}, "session_id is 1.5"),
        ({"session_id": "0", "messages": MESSAGES}, 'session_id is "0", but at'),
        ({"session_id": 0, "messages": [{"role": "user"}]}, r"messages\[0\]: expected a message"),
        ({"session_id": 0, "messages": [MESSAGES[0] | {"ts": "soon"}]}, "ts 'soon'"),
        ({"session_id": 0, "messages": [MESSAGES[0] | {"ts": -1}]}, "ts -1"),
        ({"session_id": 0, "messages": [MESSAGES[0] | {"elapsed_min": "x"}]}, "elapsed_min 'x'"),
        ({"session_id": 0, "messages": [MESSAGES[0] | {"elapsed_min": "nan"}]}, "elapsed_min"),
        ({"session_id": 0, "messages": [MESSAGES[0] | {"elapsed_min": -1}]}, "elapsed_min -1"),
        ([], "list, expected one JSON object"),
    ],
)
def test_messages_mistakes_are_named_with_their_line(
    tmp_path: Path, record: Any, problem: str
) -> None:
    path = jsonl(tmp_path / "t.jsonl", {"session_id": 0, "messages": MESSAGES}, record)
    with pytest.raises(UserError, match=rf"t\.jsonl:2: .*{problem}"):
        read_as(path, "messages")


# sharegpt


@pytest.mark.parametrize("ending", ["json", "json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt_as_one_array(tmp_path: Path, ending: str, indent: int | None) -> None:
    records = [{"id": "a_0", "conversations": SHARED_GPT}, {"conversations": SHARED_GPT}]
    data = json.dumps(records, indent=indent).encode()
    path = tmp_path / f"t.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    requests = read(path, "sharegpt")
    assert symbols(requests) == expected(2)
    assert [r.session for r in requests] == ["a_0", "a_0", "1", "1"]


def test_sharegpt_as_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", {"id": 3, "conversations": SHARED_GPT})
    assert symbols(read(path, "sharegpt")) == expected()


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"id": 0}, "no list 'conversations'"),
        ({"id": [], "conversations": []}, r"id \[\]"),
        (3, "no list 'conversations'"),
        ({"id": 0, "conversations": [{"from": "gpt"}]}, r"conversations\[0\]: expected an object"),
        ({"id": 0, "conversations": [{"from": "alien", "value": ""}]}, "from 'alien', expected"),
        ({"id": 0, "conversations": [{"from": "gpt", "value": 3}]}, "content is int"),
    ],
)
def test_sharegpt_mistakes_are_named_with_their_element(
    tmp_path: Path, record: Any, problem: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"conversations": SHARED_GPT}, record]))
    with pytest.raises(UserError, match=rf"t\.json: element 1: .*{problem}"):
        read_as(path, "sharegpt")


# swe-agent


def write_trajectory(path: Path, record: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def test_swe_agent_reads_a_tree_of_trajectories_by_name(tmp_path: Path) -> None:
    extra = [m | {"agent": "main", "thought": "t"} for m in MESSAGES]
    write_trajectory(tmp_path / "run2" / "a.traj", {"history": extra, "trajectory": []})
    write_trajectory(tmp_path / "run1" / "b.traj", {"history": MESSAGES})
    write_trajectory(tmp_path / "run1" / "a.traj.json", {"messages": MESSAGES, "info": {}})
    (tmp_path / "run1" / "notes.json").write_text("not a trajectory")
    requests = read(tmp_path, "swe-agent")
    assert symbols(requests) == expected(3)
    assert [r.session for r in requests[::2]] == ["run1/a", "run1/b", "run2/a"]


def test_swe_agent_reads_one_file(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "a.traj.json", {"messages": MESSAGES})
    (first, _) = read(tmp_path / "a.traj.json", "swe-agent")
    assert first.session == "a"


def test_swe_agent_puts_a_history_together_from_the_steps(tmp_path: Path) -> None:
    steps = [
        {"query": MESSAGES[:1], "response": "yes", "observation": "three", "thought": "t"},
        {"query": MESSAGES[:3], "response": "no", "observation": None},
    ]
    write_trajectory(tmp_path / "a.traj", {"history": [], "trajectory": steps})
    assert symbols(read(tmp_path, "swe-agent")) == expected()


def test_swe_agent_demonstrations_are_no_requests(tmp_path: Path) -> None:
    demo = [m | {"is_demo": True} for m in MESSAGES]
    write_trajectory(tmp_path / "a.traj", {"history": demo + MESSAGES})
    answers = [len(json.dumps(m)) + 1 for m in (MESSAGES[1], MESSAGES[3])]
    assert [r.output_tokens for r in read(tmp_path)] == answers


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "list, expected an object"),
        ("{}", "no list 'history', 'messages' or 'trajectory'"),
        ('{"history": [3]}', "history, message 0: expected a message"),
        ('{"trajectory": [{"observation": ""}]}', r"trajectory\[0\]: expected a step"),
    ],
)
def test_swe_agent_mistakes_are_named_with_their_file(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "bad.traj").write_text(text)
    with pytest.raises(UserError, match=rf"bad\.traj: {problem}"):
        read(tmp_path)


def test_swe_agent_needs_a_trajectory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file that ends in \.traj"):
        read_as(tmp_path, "swe-agent")
    with pytest.raises(UserError, match="no such file or directory"):
        read_as(tmp_path / "absent", "swe-agent")


# every format


@pytest.mark.parametrize("name", ["messages", "sharegpt"])
def test_a_directory_an_absent_and_an_empty_file_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for path, problem in [(tmp_path, "is a directory"), (tmp_path / "no", "no such file"),
                          (tmp_path / "empty", "empty")]:  # fmt: skip
        with pytest.raises(UserError, match=problem):
            read_as(path, name)


@pytest.mark.parametrize("name", ["messages", "sharegpt"])
def test_a_cut_off_gzip_file_is_refused(tmp_path: Path, name: str) -> None:
    key, values = ("messages", MESSAGES) if name == "messages" else ("conversations", SHARED_GPT)
    noise = "".join(map(chr, np.random.default_rng(0).integers(32, 127, 20000)))
    record = {key: values, "noise": noise}
    text = json.dumps(record) + "\n" if name == "messages" else json.dumps([record])
    whole = gzip.compress(text.encode())
    path = tmp_path / "t.gz"
    path.write_bytes(whole[:-2000])
    assert detect_format(path).name == name
    with pytest.raises(UserError, match="damaged gzip"):
        read(path)


def test_a_source_without_requests_says_what_was_left_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", {"session_id": 0, "messages": MESSAGES})
    options = ImportOptions(tokenizer="bytes", min_rounds=3)
    with pytest.raises(UserError, match=r"no request in it .*sessions_with_too_few_rounds 1"):
        import_trace(path, detect_format(path), options, {})


def test_provenance_names_tokenizer_options_and_source_but_no_folder(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", {"session_id": 0, "messages": MESSAGES})
    options = ImportOptions(tokenizer="bytes", max_turns=1)
    trace = import_trace(path, detect_format(path), options, {"licence": "none"})
    assert trace.provenance["tokenizer"] == "bytes"
    assert trace.provenance["options"] == {"max_turns": 1}
    assert trace.provenance["source_file"] == "t.jsonl"
    assert trace.provenance["licence"] == "none"
    assert trace.provenance["sessions_cut_at_max_turns"] == 1
    assert str(tmp_path) not in json.dumps(dict(trace.provenance))


# one big array


def test_array_elements_longer_than_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    values = ["é" * 3_000_000, {"a": "x" * 2_500_000}, 5, [], "end"]
    path.write_text(json.dumps(values, ensure_ascii=False), "utf-8")
    assert [value for _, value in read_json_array(path)] == values


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty, expected a JSON array"),
        ("{}", "begins with '{', expected a JSON array"),
        ("[]", "an empty array"),
        ("[1, ", "element 1: not JSON, or the file is cut off"),
        ("[1,]", "element 1: not JSON"),
        ('[1, {"a": ', "element 1: not JSON, or the file is cut off"),
        ("[1", "after element 0: expected"),
        ("[1 2]", "after element 0: expected"),
        ("[1] 2", "more text after the end"),
        ("[nope]", "element 0: not JSON"),
    ],
)
def test_array_mistakes(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UserError, match=problem):
        list(read_json_array(path))


def test_array_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'["\xff\xfe"]')
    with pytest.raises(UserError, match="not UTF-8 text"):
        list(read_json_array(path))


@pytest.mark.parametrize("layout", ["messages", "sharegpt array"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, layout: str) -> None:
    """50 MB of sessions are read in less than 12 MB."""
    path = tmp_path / "t.json"
    answer = "word " * 5000
    with path.open("w") as file:
        if layout == "messages":
            chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
            for i in range(2000):
                file.write(json.dumps({"session_id": i, "messages": chat}) + "\n")
        else:
            talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": answer}]
            for i in range(2000):
                file.write(("[" if i == 0 else ",") + json.dumps({"id": i, "conversations": talk}))
            file.write("]")
    assert path.stat().st_size > 50e6
    tracemalloc.start()
    try:
        count = sum(1 for _ in detect_format(path).read(path, OPTIONS, {}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2000
    assert peak < 12e6
