"""Describing and drawing traces."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.arrivals import Arrivals
from marconi_sim.trace.compiled.build import Request, build
from marconi_sim.trace.description.describe import describe, heading, print_description
from marconi_sim.trace.description.plot import plot_lengths
from marconi_sim.trace.load import Workload, load_trace, schedule

TOKENS = [
    ("a", 0, [1, 2, 3], [4, 5], 0.0),
    ("b", 0, [1, 2, 9], [4], 1.0),
    ("a", 1, [1, 2, 3, 4, 5, 6], [7], 2.0),
    ("b", 1, [1, 2, 9], [], 3.0),
]


def workload(provenance: dict[str, Any] | None = None, sessions: int | None = None) -> Workload:
    trace = build(
        (
            Request(name, turn, np.array(given + said, np.int32), len(given), len(said), arrival=at)
            for name, turn, given, said, at in TOKENS
        ),
        provenance or {},
    )
    return schedule(trace, Arrivals("native", "native"), name="tiny", sessions=sessions)


def naive_seen(inputs: list[list[int]], sequences: list[list[int]]) -> list[int]:
    seen = []
    for i, tokens in enumerate(inputs):
        shared = 0
        for earlier in sequences[:i]:
            length = 0
            while length < min(len(tokens), len(earlier)) and tokens[length] == earlier[length]:
                length += 1
            shared = max(shared, length)
        seen.append(shared)
    return seen


def test_facts() -> None:
    facts = describe(workload())
    assert (facts.requests, facts.sessions, facts.total_input_tokens) == (4, 2, 15)
    assert facts.total_output_tokens == 4
    assert facts.distinct_tokens == 9  # 1 2 3 4 5 6 7, and 9 4 behind 1 2
    sequences = [given + said for _, _, given, said, _ in TOKENS]
    assert facts.seen_tokens == sum(naive_seen([t[2] for t in TOKENS], sequences)) == 10
    assert facts.seen_share == pytest.approx(10 / 15)
    assert facts.turns["mean"] == 2
    assert facts.input_tokens["max"] == 6
    assert facts.output_tokens["min"] == 0
    assert facts.arrival_span == 3.0
    assert facts.synthetic is None


def test_only_the_sessions_that_take_part_count() -> None:
    facts = describe(workload(sessions=1))
    assert (facts.requests, facts.sessions, facts.distinct_tokens) == (2, 1, 7)


def test_seen_on_random_sequences() -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.integers(0, 2, generator.integers(1, 9)).tolist() for _ in range(200)]
    outputs = [generator.integers(0, 2, generator.integers(0, 5)).tolist() for _ in range(200)]
    both = [i + o for i, o in zip(inputs, outputs, strict=True)]
    trace = build(
        (
            Request(
                str(k), 0, np.array(both[k], np.int32), len(inputs[k]), len(outputs[k]), arrival=k
            )
            for k in range(200)
        ),
        {},
    )
    facts = describe(schedule(trace, Arrivals("native", "native"), name="random"))
    assert facts.seen_tokens == sum(naive_seen(inputs, both))
    assert facts.distinct_tokens == len({tuple(b[: k + 1]) for b in both for k in range(len(b))})


def test_synthetic_stands_in_the_heading() -> None:
    facts = describe(workload({"synthetic": True}))
    assert facts.synthetic is True
    assert heading(facts) == "SYNTHETIC: tiny"
    assert heading(describe(load_trace("lmsys"))).count("SYNTHETIC") == 1


def test_tables_say_what_matters() -> None:
    facts = describe(load_trace("lmsys"))
    stream = io.StringIO()
    print_description(facts, Console(file=stream, width=80))
    text = " ".join(stream.getvalue().split())
    for wanted in (
        "SYNTHETIC",
        "caveat",
        "3,337 in 200 sessions",
        "5 GB",
        "seed",
        "infinite cache",
    ):
        assert wanted in text
    assert facts.sha256 in stream.getvalue().replace("\n", "").replace(" ", "")


def test_description_is_json() -> None:
    facts = describe(load_trace("mooncake"))
    assert json.loads(json.dumps(facts.as_dict()))["block_size"] == 512


@pytest.mark.parametrize(
    ("ending", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_pictures_are_written_and_the_same_again(tmp_path: Path, ending: str, magic: bytes) -> None:
    tiny = workload({"synthetic": True, "source": "a test"})
    facts = describe(tiny)
    for name in ("one", "two"):
        plot_lengths(tiny, facts, tmp_path / f"{name}{ending}")
    one = (tmp_path / f"one{ending}").read_bytes()
    assert one.startswith(magic)
    assert one == (tmp_path / f"two{ending}").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"one{ending}", f"two{ending}"]


def test_pictures_say_that_they_are_synthetic(tmp_path: Path) -> None:
    tiny = workload({"synthetic": True, "source": "a test"})
    plot_lengths(tiny, describe(tiny), tmp_path / "p.svg")
    assert b"SYNTHETIC" in (tmp_path / "p.svg").read_bytes()


def test_pictures_that_cannot_be_written(tmp_path: Path) -> None:
    tiny = workload()
    facts = describe(tiny)
    with pytest.raises(UsageError, match=r"cannot draw '.gif'; use one of: .png, .pdf, .svg"):
        plot_lengths(tiny, facts, tmp_path / "p.gif")
    with pytest.raises(UserError, match="does not exist"):
        plot_lengths(tiny, facts, tmp_path / "missing" / "p.png")
