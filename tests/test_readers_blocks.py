"""The readers of block hashes: what files become, and damaged ones."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.compile_source import import_trace
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format, format_named


def jsonl(path: Path, *records: Any) -> Path:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def compiled(path: Path, name: str, **given: Any) -> Trace:
    options = ImportOptions(**given)
    return import_trace(path, format_named(name, options), options, {})


def requests(path: Path, name: str, **given: Any) -> list[Request]:
    options = ImportOptions(**given)
    return list(format_named(name, options).read(path, options, {}))


def line(**changes: Any) -> dict[str, Any]:
    return {"timestamp": 0, "input_length": 6, "output_length": 2, "hash_ids": [0, 1]} | changes


# mooncake


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_mooncake_is_detected_and_read(tmp_path: Path, ending: str) -> None:
    path = jsonl(tmp_path / f"m.{ending}", line(timestamp=1500))
    assert detect_format(path).name == "mooncake"
    (request,) = requests(path, "mooncake", block_size=4)
    assert request.symbols.tolist() == [0, 1]
    assert (request.input_tokens, request.output_tokens) == (6, 2)
    assert request.arrival == 1.5
    assert (request.session, request.turn, request.output_known) == ("0", 0, False)


def test_mooncake_is_detected_by_the_start_of_a_long_line(tmp_path: Path) -> None:
    ids = list(range(5000))
    path = jsonl(tmp_path / "m.jsonl", line(hash_ids=ids, input_length=512 * 5000))
    assert detect_format(path).name == "mooncake"


def test_mooncake_continuation_puts_the_output_on_the_next_inputs_path(tmp_path: Path) -> None:
    second = line(timestamp=1000, input_length=11, hash_ids=[0, 5, 6])
    other = line(timestamp=2000, input_length=6, hash_ids=[8, 9])
    trace = compiled(jsonl(tmp_path / "m.jsonl", line(), second, other), "mooncake", block_size=4)
    assert trace.input_tokens.tolist() == [6, 11, 6]
    assert trace.output_tokens.tolist() == [2, 2, 2]
    assert [trace.session_names[s] for s in trace.session] == ["0", "0", "2"]
    assert trace.turn.tolist() == [0, 1, 0]
    path, node = set(), int(trace.input_node[1])
    while node:
        path.add(node)
        node = int(trace.parent[node])
    assert {int(trace.input_node[0]), int(trace.end_node[0])} < path
    assert trace.provenance["continuations"].startswith("continuations inferred: 1 of 3 requests")
    assert trace.provenance["block_size"] == 4


def test_mooncake_unknown_outputs_share_nothing(tmp_path: Path) -> None:
    trace = compiled(
        jsonl(tmp_path / "m.jsonl", line(), line(timestamp=5)), "mooncake", block_size=4
    )
    assert trace.input_node[0] == trace.input_node[1]
    assert trace.end_node[0] != trace.end_node[1]


def test_mooncake_takes_ids_up_to_63_bits(tmp_path: Path) -> None:
    (request,) = requests(
        jsonl(tmp_path / "m.jsonl", line(hash_ids=[2**63 - 1, 0])), "mooncake", block_size=4
    )
    assert request.symbols.tolist() == [2**63 - 1, 0]


@pytest.mark.parametrize(
    ("length", "ids", "hint"),
    [
        (1000, 63, "--block-size 16 "),
        (1000, 10, "--block-size 100 "),
        (100, 1, "--block-size 128 "),
        (10, 6, "no block size fits both"),
        (3, 9, "no block size fits both"),
    ],
)
def test_mooncake_wrong_block_size(tmp_path: Path, length: int, ids: int, hint: str) -> None:
    fitting = line(input_length=7, hash_ids=[0])
    bad = line(input_length=length, hash_ids=list(range(ids)))
    path = jsonl(tmp_path / "m.jsonl", fitting, bad)
    with pytest.raises(UserError) as error:
        requests(path, "mooncake", block_size=7)
    blocks = math.ceil(length / 7)
    text = str(error.value)
    assert f"{path}:2: {ids} hash_ids, but input_length {length} makes {blocks} blocks" in text
    assert hint in text + " "


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hash_ids": [0, -1]}, r"hash_ids\[1\] is -1"),
        ({"hash_ids": [2**63, 0]}, r"hash_ids\[0\] is 9223372036854775808"),
        ({"hash_ids": [0, 1.0]}, r"hash_ids\[1\] is 1.0"),
        ({"hash_ids": [True, 1]}, r"hash_ids\[0\] is True"),
        ({"hash_ids": "01"}, "hash_ids is str"),
        ({"input_length": 0}, "input_length is 0"),
        ({"input_length": 6.0}, "input_length is 6.0"),
        ({"output_length": -1}, "output_length is -1"),
        ({"output_length": 2**31 - 6}, "input_length \\+ output_length"),
        ({"timestamp": None}, "timestamp is None, expected a finite number"),
        ({"timestamp": "0"}, "timestamp is '0'"),
    ],
)
def test_mooncake_bad_values_name_the_line(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    path = jsonl(tmp_path / "m.jsonl", line(), line(**changes))
    with pytest.raises(UserError, match=rf"m\.jsonl:2: .*{text}"):
        requests(path, "mooncake", block_size=4)


@pytest.mark.parametrize("key", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_mooncake_missing_keys(tmp_path: Path, key: str) -> None:
    record = line()
    del record[key]
    with pytest.raises(UserError, match=rf":1: '{key}' is missing; keys found: "):
        requests(jsonl(tmp_path / "m.jsonl", record), "mooncake", block_size=4)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_mooncake_nan_is_not_json(tmp_path: Path, value: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(line()).replace('"timestamp": 0', f'"timestamp": {value}') + "\n")
    with pytest.raises(UserError, match=r"m\.jsonl:1: not JSON"):
        requests(path, "mooncake", block_size=4)


def test_mooncake_truncated_gzip(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl.gz", *(line(timestamp=i) for i in range(300)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="damaged gzip"):
        requests(path, "mooncake", block_size=4)


def test_mooncake_block_size_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--block-size 0: must be at least 1"):
        requests(jsonl(tmp_path / "m.jsonl", line()), "mooncake", block_size=0)


def test_mooncake_production_hour(shared: Path) -> None:
    trace = compiled(shared / "data/blocks/mooncake_conversation.jsonl.gz", "mooncake")
    assert trace.requests == 12_031
    assert round(float(trace.input_tokens.mean()), -2) == 12_000
    assert trace.provenance["continuations"].startswith("continuations inferred: 3532 of 12031")
    # The rule knows nothing of how long people take, yet no answer comes within 5 seconds.
    rows = np.flatnonzero(trace.turn > 0)
    before = {
        (int(s), int(t)): i for i, (s, t) in enumerate(zip(trace.session, trace.turn, strict=True))
    }
    gaps = [
        trace.arrival[i] - trace.arrival[before[int(trace.session[i]), int(trace.turn[i]) - 1]]
        for i in rows
    ]
    assert min(gaps) > 5


# weka


def call(t: float, ids: list[int], tokens: int, out: int = 2, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": tokens, "out": out, "hash_ids": ids} | more


def session(name: str, *calls: dict[str, Any], tools: int = 5, system: int = 4) -> dict[str, Any]:
    heads = {"tool_tokens": tools, "system_tokens": system}
    return {"id": name, "block_size": 4, **heads, "requests": list(calls)}


def test_weka_is_detected_and_read(tmp_path: Path) -> None:
    first = call(0.0, [1, 2, 3], 13, think_time=0.0)
    second = call(9.5, [1, 2, 3, 4], 18, think_time=6.0)
    path = jsonl(tmp_path / "w.jsonl.gz", session("a", first, second))
    assert detect_format(path).name == "weka"
    trace = compiled(path, "weka", block_size=4)
    assert trace.input_tokens.tolist() == [13, 18]
    assert trace.arrival.tolist() == [0.0, 9.5]
    assert trace.think_time.tolist() == [0.0, 6.0]
    # 13 + 2 tokens lie inside the second input's fourth block.
    assert trace.parent[trace.input_node[1]] in (
        trace.end_node[0],
        trace.parent[trace.input_node[1]],
    )
    assert trace.depth[trace.end_node[0]] == 15
    assert "1 of 2 requests" in trace.provenance["continuations"]


def test_weka_sessions_share_heads_and_nothing_else(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "w.jsonl",
        session("a", call(0, [1, 2, 3], 12)),
        session("b", call(0, [1, 2, 3], 12)),
        session("c", call(0, [1, 2, 3], 12), tools=6),
    )
    trace = compiled(path, "weka", block_size=4)
    shared_node = trace.parent[trace.input_node[0]]
    assert trace.depth[shared_node] == 8  # 5 + 4 tokens fill two blocks
    assert trace.parent[trace.input_node[1]] == shared_node
    assert trace.parent[trace.input_node[2]] == 0
    assert "2 of 3 sessions" in trace.provenance["shared_heads"]
    alone = compiled(path, "weka", block_size=4, shared_heads=False)
    assert (alone.parent[alone.input_node] == 0).all()
    assert alone.provenance["shared_heads"].startswith("none")


def test_weka_heads_of_different_reach_agree_on_what_both_have(tmp_path: Path) -> None:
    # The first session's first input is shorter than its head.
    path = jsonl(
        tmp_path / "w.jsonl",
        session("a", call(0, [1], 4)),
        session("b", call(0, [7, 8, 9], 12)),
        session("c", call(0, [5, 6, 7], 12)),
    )
    trace = compiled(path, "weka", block_size=4)
    assert trace.depth[trace.parent[trace.input_node[1:]]].tolist() == [8, 8]
    assert trace.parent[trace.parent[trace.input_node[1]]] == trace.input_node[0]


def test_weka_subagents_are_sessions(tmp_path: Path) -> None:
    agent = {
        "t": 100.0,
        "type": "subagent",
        "agent_id": "agent_001",
        "tool_tokens": 1,
        "system_tokens": 1,
        "requests": [call(0.0, [20, 21], 8), call(4.0, [20, 21, 22], 12)],
    }
    path = jsonl(
        tmp_path / "w.jsonl", session("a", call(0.0, [1, 2], 8), agent, call(200.0, [1, 2], 9))
    )
    found = requests(path, "weka", block_size=4)
    assert [(r.session, r.turn, r.arrival) for r in found] == [
        ("a", 0, 0.0),
        ("a", 1, 200.0),
        ("a/agent_001", 0, 100.0),
        ("a/agent_001", 1, 104.0),
    ]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (session("a", call(0, [1], 8)), r"requests\[0\]: 1 hash_ids, but 'in' 8 fills 2 blocks"),
        (session("a", call(0, [-1], 4)), r"requests\[0\]: hash_ids\[0\] is -1"),
        (session("a", {"t": 0, "in": 4, "hash_ids": [1]}), r"requests\[0\]: 'out' is missing"),
        (session("a", call(0, [1], 4), {"t": None} | call(0, [1], 4) | {"t": None}), "t is None"),
        (session("a") | {"requests": 3}, "requests is not a list"),
        (session("a", call(0, [1], 4)) | {"block_size": 64}, "give --block-size 64"),
        ({"requests": []}, "'id' is missing"),
        (session("a", call(0, [1], 4), tools=-1), "tool_tokens is -1"),
    ],
)
def test_weka_bad_values_name_the_place(tmp_path: Path, record: Any, text: str) -> None:
    path = jsonl(tmp_path / "w.jsonl", session("z", call(0, [1], 4)), record)
    with pytest.raises(UserError, match=rf"w\.jsonl:2: .*{text}"):
        requests(path, "weka", block_size=4)


def test_weka_session_names_must_differ(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "w.jsonl", session("a", call(0, [1], 4)), session("a", call(0, [1], 4)))
    with pytest.raises(UserError, match=r":2: session 'a' is there twice"):
        requests(path, "weka", block_size=4)


def test_an_option_of_another_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shared-heads: means nothing to format 'mooncake'"):
        format_named("mooncake", ImportOptions(shared_heads=True))
