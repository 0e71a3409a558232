"""Arrival models and workloads: times, order, re-timing, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.arrivals import Arrivals, arrival_times, default_arrivals, retimed
from marconi_sim.trace.compiled.build import Request, build
from marconi_sim.trace.compiled.trace import Trace, save
from marconi_sim.trace.load import Workload, load_trace, schedule

NAN = math.nan


def trace_of(*rows: tuple[str, int, float, float, int]) -> Trace:
    """Build a trace from (session, turn, arrival, think time, words)."""
    requests = (
        Request(session, turn, np.array([2 * i, 2 * i + 1], np.int32), 1, 1, True, *times)
        for i, (session, turn, *times) in enumerate(rows)
    )
    return build(requests, {})


def silent(sessions: int = 3, turns: int = 4) -> Trace:
    """A trace whose source tells no times; sessions are interleaved and in reverse order."""
    rows = [(str(s), t, NAN, NAN, t) for t in range(turns) for s in reversed(range(sessions))]
    return trace_of(*rows)


def keys(workload: Workload) -> list[tuple[str, int]]:
    trace, order = workload.trace, workload.order
    names = [trace.session_names[s] for s in trace.session[order]]
    return list(zip(names, trace.turn[order].tolist(), strict=True))


def times(trace: Trace, model: Arrivals) -> tuple[list[float], list[float]]:
    """Return arrivals and think times in the order of the trace."""
    rows, arrival, think_time = arrival_times(trace, model)
    back = np.argsort(rows)
    return arrival[back].tolist(), think_time[back].tolist()


# times


def test_fixed_starts_are_evenly_spaced_in_the_order_of_sessions() -> None:
    model = Arrivals("fixed", "response-time", sessions_per_second=4, response_time=0)
    trace = trace_of(("b", 0, NAN, NAN, -1), ("a", 0, NAN, NAN, -1), ("c", 0, NAN, NAN, -1))
    assert times(trace, model)[0] == [0.25, 0.0, 0.5]


def test_response_times_are_whole_seconds_drawn_in_the_order_of_sessions() -> None:
    trace = silent(3, 4)
    arrival, think = times(trace, Arrivals("fixed", "response-time"))
    drawn = np.random.default_rng(42).poisson(5.0, 9).reshape(3, 3)
    for s in range(3):
        rows = np.flatnonzero(trace.session == s)
        assert [arrival[row] for row in rows] == [s, *(s + np.cumsum(drawn[s]))]
        assert [think[row] for row in rows] == [0, *drawn[s]]


def test_the_first_sessions_keep_their_times() -> None:
    model = Arrivals("fixed", "response-time", seed=7)
    whole = schedule(silent(5, 6), model, name="t")
    part = schedule(silent(5, 6), model, name="t", sessions=2)
    of_part = whole.trace.session[whole.order] < 2
    assert part.order.tolist() == whole.order[of_part].tolist()
    assert part.arrival.tolist() == whole.arrival[of_part].tolist()
    assert (part.requests, part.sessions) == (12, 2)


def test_typing_takes_the_time_of_the_words_and_none_where_there_are_none() -> None:
    trace = trace_of(("a", 0, NAN, NAN, 500), ("a", 1, NAN, NAN, 30), ("a", 2, NAN, NAN, -1))
    arrival, think = times(trace, Arrivals("fixed", "typing"))
    assert arrival == [0.0, 20.0, 20.0]
    assert think == [0.0, 20.0, 0.0]
    faster = times(trace, Arrivals("fixed", "typing", words_per_minute=180))
    assert faster[0] == [0.0, 10.0, 10.0]


def test_native_times_are_kept_and_gaps_filled_from_think_times() -> None:
    trace = trace_of(
        ("a", 0, 7.0, NAN, -1), ("a", 1, NAN, 2.0, -1), ("a", 2, 50.0, 1.0, -1),
        ("a", 3, NAN, 3.0, -1),
    )  # fmt: skip
    arrival, think = times(trace, Arrivals("native", "native"))
    assert arrival == [7.0, 9.0, 50.0, 53.0]
    assert think == [0.0, 2.0, 1.0, 3.0]


def test_native_gaps_with_fixed_starts_shift_whole_sessions() -> None:
    trace = trace_of(("a", 0, 100.0, NAN, -1), ("b", 0, 3.0, NAN, -1), ("a", 1, 104.0, NAN, -1))
    arrival, think = times(trace, Arrivals("fixed", "native", sessions_per_second=0.5))
    assert arrival == [0.0, 2.0, 4.0]
    assert think == [0.0, 0.0, 4.0]


def test_times_of_a_session_do_not_depend_on_the_others() -> None:
    rows = [("a", t, NAN, NAN, 1) for t in range(50)]
    alone = times(trace_of(*rows), Arrivals("fixed", "typing"))[0]
    after = [("b", t, NAN, NAN, 10**6 + t) for t in range(50)]
    before = [("A", t, 0.0 if t == 0 else NAN, NAN, 10**6 + t) for t in range(50)]
    assert times(trace_of(*rows, *after), Arrivals("fixed", "typing"))[0][:50] == alone
    told = [("a", 0, 0.0, NAN, 1), *rows[1:]]
    assert times(trace_of(*before, *told), Arrivals("native", "typing"))[0][50:] == alone


# order


def test_order_is_by_arrival_session_turn_position() -> None:
    trace = trace_of(
        ("10", 0, 1.0, NAN, -1), ("9", 1, 1.0, NAN, -1), ("9", 0, 1.0, NAN, -1),
        ("9", 0, 1.0, NAN, -1), ("8", 5, 0.5, NAN, -1),
    )  # fmt: skip
    workload = schedule(trace, Arrivals("native", "native"), name="t")
    assert workload.order.tolist() == [4, 2, 3, 1, 0]
    assert workload.order.dtype == np.int64
    assert workload.arrival.tolist() == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_a_regenerated_turn_follows_after_a_gap_of_its_own() -> None:
    trace = trace_of(("a", 0, NAN, NAN, -1), ("a", 1, NAN, NAN, -1), ("a", 1, NAN, NAN, -1))
    workload = schedule(trace, Arrivals("fixed", "response-time"), name="t")
    drawn = np.random.default_rng(42).poisson(5.0, 2)
    assert workload.order.tolist() == [0, 1, 2]
    assert workload.arrival.tolist() == [0, drawn[0], drawn.sum()]


def test_lines_out_of_time_order_are_sorted_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(("a", 0, 5.0, NAN, -1), ("b", 0, 1.0, NAN, -1))
    assert schedule(trace, Arrivals("native", "native"), name="t").order.tolist() == [1, 0]
    assert "not in order of time; sorted" in capsys.readouterr().err
    schedule(trace, Arrivals("fixed", "native"), name="t")
    assert capsys.readouterr().err == ""


# models


def test_parameters_have_defaults_and_unused_ones_are_none() -> None:
    assert Arrivals("fixed", "response-time") == Arrivals("fixed", "response-time", 1.0, 5.0, 42)
    typing = Arrivals("native", "typing")
    assert (typing.sessions_per_second, typing.seed, typing.words_per_minute) == (None, None, 90.0)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"start": "late", "gap": "native"}, "start 'late': unknown"),
        ({"start": "fixed", "gap": "long"}, "gap 'long': unknown"),
        (
            {"start": "native", "gap": "native", "sessions_per_second": 1},
            "has no effect with start",
        ),
        (
            {"start": "fixed", "gap": "typing", "response_time": 5},
            "has no effect with gap 'typing'",
        ),
        ({"start": "fixed", "gap": "response-time", "words_per_minute": 9}, "has no effect"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": 0}, "sessions_per_second 0"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": -1.0}, "must be a number"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": math.inf}, "must be a number"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": NAN}, "must be a number"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": True}, "must be a number"),
        ({"start": "fixed", "gap": "native", "sessions_per_second": "1"}, "must be a number"),
        ({"start": "fixed", "gap": "response-time", "response_time": -1}, "response_time -1"),
        ({"start": "fixed", "gap": "response-time", "response_time": NAN}, "response_time nan"),
        ({"start": "fixed", "gap": "response-time", "seed": -1}, "seed -1"),
        ({"start": "fixed", "gap": "response-time", "seed": 1.0}, "seed 1.0"),
        ({"start": "fixed", "gap": "typing", "words_per_minute": 0}, "words_per_minute 0"),
    ],
)
def test_bad_parameters_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Arrivals(**values)


def test_numpy_numbers_are_numbers() -> None:
    model = Arrivals("fixed", "response-time", np.float32(2), np.int64(3), np.int64(4))
    assert model == Arrivals("fixed", "response-time", 2.0, 3.0, 4)
    assert type(model.seed) is int


def test_retiming_switches_to_the_form_that_uses_the_parameter() -> None:
    typing = Arrivals("native", "typing")
    assert retimed(typing, sessions_per_second=2) == Arrivals("fixed", "typing", 2.0)
    drawn = retimed(typing, response_time=7, seed=1)
    assert drawn == Arrivals("native", "response-time", response_time=7.0, seed=1)
    assert retimed(typing, seed=3) == typing
    assert retimed(typing) == typing
    with pytest.raises(UsageError, match="seed -3"):
        retimed(typing, seed=-3)


def test_a_model_that_needs_what_the_trace_does_not_have_is_refused() -> None:
    untold = trace_of(("a", 0, NAN, NAN, -1), ("a", 1, NAN, NAN, -1))
    with pytest.raises(UsageError, match=r"request 1 \(session 'a', turn 1\) has neither"):
        arrival_times(untold, Arrivals("fixed", "native"))
    with pytest.raises(UsageError, match="does not know how many words"):
        arrival_times(untold, Arrivals("fixed", "typing"))
    with pytest.raises(UsageError, match="session 'a' does not tell when it started"):
        arrival_times(untold, Arrivals("native", "response-time"))


def test_the_default_model_is_native_where_the_source_tells_and_else_fixed() -> None:
    told = trace_of(("a", 0, 1.0, NAN, -1), ("a", 1, 2.0, NAN, -1))
    assert default_arrivals(told) == Arrivals("native", "native")
    thinking = trace_of(("a", 0, NAN, NAN, -1), ("a", 1, NAN, 2.0, -1))
    assert default_arrivals(thinking) == Arrivals("fixed", "native")
    assert default_arrivals(silent()) == Arrivals("fixed", "response-time")


# loading


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    lines = [
        {"session_id": s, "turn_id": t, "ts": 10.0 * s + t, "input_tokens": [s, *range(t + 1)],
         "output_tokens": [9]}
        for s in range(3) for t in range(2)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_an_artifact_file_is_loaded_with_its_own_times(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = load_trace(str(artifact))
    assert (workload.name, workload.recipe, workload.sessions) == ("mine", None, 3)
    assert workload.arrival.tolist() == [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]
    assert capsys.readouterr().err == ""


def test_options_re_time_a_file_and_say_so(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = load_trace(artifact, sessions=2, sessions_per_second=0.5)
    assert workload.arrival.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert "sessions start evenly spaced" in capsys.readouterr().err
    drawn = load_trace(artifact, response_time=2, seed=3)
    gaps = np.random.default_rng(3).poisson(2.0, 3)
    assert drawn.arrival.tolist() == sorted([0, gaps[0], 10, 10 + gaps[1], 20, 20 + gaps[2]])
    assert "drawn from a Poisson distribution instead of 'native'" in capsys.readouterr().err
    load_trace(artifact, seed=3)
    assert "seed 3 has no effect" in capsys.readouterr().err


@pytest.mark.parametrize("sessions", [0, -1, 4, 1.0, True])
def test_a_number_of_sessions_that_is_not_there_is_refused(artifact: Path, sessions: Any) -> None:
    with pytest.raises(UsageError, match=rf"sessions {sessions}: trace 'mine' has 3; give 1 to 3"):
        load_trace(artifact, sessions=sessions)


def test_a_compiled_file_without_times_gets_the_default_model_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(silent(), tmp_path / "t.parquet")
    workload = load_trace(tmp_path / "t.parquet")
    assert workload.arrivals == Arrivals("fixed", "response-time")
    error = capsys.readouterr().err
    assert "does not tell when its requests arrive: one session a second, Poisson(5 s)" in error
    assert error.count("\n") == 1


def test_the_same_workload_twice_is_the_same(tmp_path: Path) -> None:
    save(silent(), tmp_path / "t.parquet")
    a, b = (load_trace(tmp_path / "t.parquet", response_time=3, seed=9) for _ in range(2))
    assert a.order.tolist() == b.order.tolist()
    assert a.arrival.tolist() == b.arrival.tolist()
    assert keys(a) == keys(b)


def test_a_format_with_choices_is_sent_to_trace_import(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"session_id": 1, "messages": []}\n')
    with pytest.raises(UsageError, match=r"needs choices .* trace import --format messages"):
        load_trace(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "empty"), (b"hello\n", "none of the known formats, begins with b'hello"),
     (b"PAR1 not parquet", "corrupted or not a Parquet file")],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"t\.jsonl: {problem}"):
        load_trace(path)


def test_a_directory_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of the known formats"):
        load_trace(tmp_path)
