"""Exports, and their way back in."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.arrivals import Arrivals
from marconi_sim.trace.compiled.build import Request, build
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.export.write import export_artifact, export_mooncake, export_requests
from marconi_sim.trace.importing.compile_source import compile_source
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import format_named
from marconi_sim.trace.load import Workload, load_trace, schedule

NATIVE = Arrivals("native", "native")
STRUCTURE = (
    "parent",
    "depth",
    "session",
    "session_names",
    "turn",
    "input_node",
    "end_node",
    "arrival",
)


def compiled(path: Path, name: str, **given_options: Any) -> Trace:
    options = ImportOptions(**given_options)
    return compile_source(path, format_named(name, options), options, {})


def structure(trace: Trace) -> dict[str, Any]:
    return {
        name: value if isinstance(value := getattr(trace, name), tuple) else value.tolist()
        for name in STRUCTURE
    }


def random_trace(seed: int, requests: int = 40) -> Trace:
    """Sequences over two tokens, some with outputs of unknown content."""
    generator = np.random.default_rng(seed)
    made = []
    for k in range(requests):
        length, output = int(generator.integers(1, 12)), int(generator.integers(0, 6))
        known = bool(generator.integers(0, 2))
        tokens = generator.integers(0, 2, length + output * known)
        made.append(
            Request(str(k % 7), k // 7, tokens, length, output, output_known=known, arrival=k / 4)
        )
    return build(made, {})


def as_workload(trace: Trace) -> Workload:
    return schedule(trace, NATIVE, name="test")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_artifact_comes_back_as_the_same_index(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    trace = random_trace(seed)
    path = tmp_path_factory.mktemp("artifact") / "a.jsonl"
    export_artifact(as_workload(trace), path, seed)
    back = compiled(path, "artifact")
    assert structure(back) == structure(trace)
    assert back.sha256 == trace.sha256


@pytest.mark.parametrize("name", ["taubench", "sharegpt"])
def test_shipped_traces_come_back_from_token_ids(tmp_path: Path, name: str) -> None:
    workload = load_trace(name, sessions=20)
    export_artifact(workload, tmp_path / "a.jsonl.gz", 3)
    back = compiled(tmp_path / "a.jsonl.gz", "artifact")
    rows = np.sort(workload.order)
    assert back.input_tokens.tolist() == workload.trace.input_tokens[rows].tolist()
    again = schedule(back, NATIVE, name="back")
    assert again.arrival.tolist() == workload.arrival.tolist()
    export_requests(workload, tmp_path / "one.csv")
    export_requests(again, tmp_path / "two.csv")
    one, two = (pyarrow.csv.read_csv(tmp_path / f"{n}.csv") for n in ("one", "two"))
    kept = ["session", "turn", "arrival", "input_tokens", "output_tokens", "seen_tokens"]
    assert one.select(kept) == two.select(kept)


def test_siblings_differ_even_beyond_the_vocabulary(tmp_path: Path) -> None:
    many = 33_000
    trace = build(
        (
            Request(str(k), 0, np.array([k, k], np.int32), 2, 0, arrival=float(k))
            for k in range(many)
        ),
        {},
    )
    export_artifact(as_workload(trace), tmp_path / "a.jsonl", 0)
    assert compiled(tmp_path / "a.jsonl", "artifact").parent.size == many + 1


def test_the_seed_decides_the_ids(tmp_path: Path) -> None:
    workload = as_workload(random_trace(1))
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        export_artifact(workload, tmp_path / f"{name}.jsonl.gz", seed)
    one, two, three = ((tmp_path / f"{n}.jsonl.gz").read_bytes() for n in ("one", "two", "three"))
    assert one == two != three
    first = json.loads(gzip.decompress(one).splitlines()[0])
    assert first["num_input_tokens"] == len(first["input_tokens"])
    assert max(first["input_tokens"]) < 32_000


def test_mooncake_comes_back_as_the_same_trace(tmp_path: Path) -> None:
    workload = load_trace("mooncake", sessions=300)
    rows = np.sort(workload.order)
    export_mooncake(workload, tmp_path / "m.jsonl", 512)
    back = compiled(tmp_path / "m.jsonl", "mooncake")
    assert back.input_tokens.tolist() == workload.trace.input_tokens[rows].tolist()
    assert back.arrival.tolist() == workload.trace.arrival[rows].tolist()
    # Chains of continuations are whole sessions, so the same ones are found again.
    names = [workload.trace.session_names[s] for s in workload.trace.session[rows]]
    first = {name: names.index(name) for name in dict.fromkeys(names)}
    assert [back.session_names[s] for s in back.session] == [str(first[n]) for n in names]
    assert back.turn.tolist() == workload.trace.turn[rows].tolist()


def test_the_whole_mooncake_trace_comes_back_with_the_same_hash(tmp_path: Path) -> None:
    workload = load_trace("mooncake")
    export_mooncake(workload, tmp_path / "m.jsonl.gz", 512)
    assert compiled(tmp_path / "m.jsonl.gz", "mooncake").sha256 == workload.trace.sha256


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_mooncake_ids_agree_up_to_whole_blocks(
    tmp_path_factory: pytest.TempPathFactory, seed: int, block: int
) -> None:
    trace = random_trace(seed)
    path = tmp_path_factory.mktemp("mooncake") / "m.jsonl"
    export_mooncake(as_workload(trace), path, block)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["input_length"] for r in records] == trace.input_tokens.tolist()

    def shared(i: int, j: int) -> int:
        """Tokens that two inputs share, by the index."""
        a, b = int(trace.input_node[i]), int(trace.input_node[j])
        while a != b:
            if a > b:
                a = int(trace.parent[a])
            else:
                b = int(trace.parent[b])
        return int(trace.depth[a])

    for i in range(0, trace.requests, 3):
        for j in range(0, trace.requests, 2):
            a, b = records[i]["hash_ids"], records[j]["hash_ids"]
            same = 0
            while same < min(len(a), len(b)) and a[same] == b[same]:
                same += 1
            equal = trace.input_node[i] == trace.input_node[j]
            assert same == (len(a) if equal else shared(i, j) // block)
            assert not set(a[same:]) & set(b[same:])


def test_tables_hold_every_request_in_processing_order(tmp_path: Path) -> None:
    trace = random_trace(2)
    late_first = dataclasses.replace(trace, arrival=trace.arrival[::-1].copy())
    workload = as_workload(late_first)
    export_requests(workload, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table["request"].to_pylist() == workload.order.tolist()
    assert table["arrival"].to_pylist() == sorted(trace.arrival.tolist())
    export_requests(workload, tmp_path / "t.csv")
    header = "request,session,turn,arrival,think_time,words,input_tokens,output_tokens,seen_tokens"
    assert (tmp_path / "t.csv").read_text().splitlines()[0].replace('"', "") == header


def test_wrong_uses(tmp_path: Path) -> None:
    workload = as_workload(random_trace(3))
    with pytest.raises(UsageError, match=r"as '.xlsx'; use one of: .csv, .parquet"):
        export_requests(workload, tmp_path / "t.xlsx")
    with pytest.raises(UsageError, match="block size 0: must be at least 1"):
        export_mooncake(workload, tmp_path / "m.jsonl", 0)
    with pytest.raises(UsageError, match="seed -1"):
        export_artifact(workload, tmp_path / "a.jsonl", -1)
    with pytest.raises(UserError, match="does not exist"):
        export_artifact(workload, tmp_path / "missing" / "a.jsonl", 0)
    assert list(tmp_path.iterdir()) == []
