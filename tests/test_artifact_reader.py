"""The JSONL of the published code: what is read, and how each mistake is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format
from marconi_sim.trace.importing.readers.artifact import read
from marconi_sim.trace.load import load_trace

GOOD: dict[str, Any] = {
    "session_id": 0,
    "turn_id": 0,
    "ts": 0.5,
    "num_input_tokens": 3,
    "input_tokens": [1, 2, 3],
    "output_tokens": [4],
}


def requests_of(path: Path) -> list[Request]:
    return list(read(path, ImportOptions(), {}))


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


def test_a_line_becomes_a_request(tmp_path: Path) -> None:
    (request,) = requests_of(write(tmp_path / "t.jsonl", GOOD))
    assert request.session == "0"
    assert (request.turn, request.arrival) == (0, 0.5)
    assert request.symbols.tolist() == [1, 2, 3, 4]
    assert request.symbols.dtype == np.int32
    assert (request.input_tokens, request.output_tokens, request.output_known) == (3, 1, True)


def test_gzip_text_ids_empty_outputs_and_blank_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    lines = [GOOD | {"session_id": "a/b"}, GOOD | {"output_tokens": [], "ts": 3}]
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, lines)).encode()))
    assert detect_format(path).name == "artifact"
    first, second = requests_of(path)
    assert first.session == "a/b"
    assert (second.output_tokens, second.arrival) == (0, 3.0)


def test_a_turn_may_come_twice_and_the_word_true_may_be_in_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", GOOD | {"session_id": "true"}, GOOD | {"session_id": "true"})
    assert [r.turn for r in requests_of(path)] == [0, 0]


def test_large_token_ids_keep_their_value(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", GOOD | {"output_tokens": [2**63 - 1]})
    assert requests_of(path)[0].symbols.tolist() == [1, 2, 3, 2**63 - 1]
    assert load_trace(path).trace.output_tokens.tolist() == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_tokens": []}, "input_tokens is empty"),
        ({"input_tokens": [1, -2]}, r"input_tokens\[1\] is -2"),
        ({"input_tokens": [1, 2.0]}, r"input_tokens\[1\] is 2.0"),
        ({"input_tokens": [1, True]}, r"input_tokens\[1\] is true"),
        ({"input_tokens": [1, "2"]}, r'input_tokens\[1\] is "2"'),
        ({"input_tokens": [1, None]}, r"input_tokens\[1\] is null"),
        ({"input_tokens": [[1]]}, r"input_tokens\[0\] is \[1\]"),
        ({"input_tokens": [2**63]}, r"input_tokens\[0\] is 9223372036854775808"),
        ({"input_tokens": [2**70]}, r"input_tokens\[0\] is 1.18"),
        ({"input_tokens": 7}, "input_tokens is 7, expected a list"),
        ({"input_tokens": "1 2 3"}, "expected a list"),
        ({"output_tokens": [0, -1]}, r"output_tokens\[1\] is -1"),
        ({"output_tokens": None}, "output_tokens is null, expected a list"),
        ({"ts": "now"}, 'ts is "now", expected seconds'),
        ({"ts": -0.1}, "ts is -0.1, expected seconds"),
        ({"ts": True}, "ts is true, expected seconds"),
        ({"ts": None}, "ts is null, expected seconds"),
        ({"turn_id": -1}, "turn_id is -1"),
        ({"turn_id": 1.0}, "turn_id is 1.0"),
        ({"turn_id": 2**31}, "turn_id is 2147483648"),
        ({"session_id": 1.5}, "session_id is 1.5"),
        ({"session_id": None}, "session_id is null"),
    ],
)
def test_a_bad_value_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "t.jsonl", GOOD, GOOD | change)
    with pytest.raises(UserError, match=rf"t\.jsonl:2: .*{message}") as caught:
        requests_of(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("first", "second"), [(1, "1"), ("1", 1), (0, "0")])
def test_a_number_and_the_same_digits_as_text_are_not_taken_for_one_session(
    tmp_path: Path, first: int | str, second: int | str
) -> None:
    lines = [GOOD | {"session_id": s, "turn_id": i} for i, s in enumerate([first, first, second])]
    path = write(tmp_path / "t.jsonl", *lines)
    with pytest.raises(UserError) as error:
        requests_of(path)
    shown = (json.dumps(second), json.dumps(first))
    assert str(error.value).startswith(
        "{0}:3: session_id is {1}, but at {0}:1 it is {2};".format(path, *shown)
    )
    apart = [GOOD | {"session_id": s} for s in ("1", "01", "1.0", "one")]
    assert len({r.session for r in requests_of(write(tmp_path / "u.jsonl", *apart))}) == 4


@pytest.mark.parametrize("key", ["session_id", "turn_id", "ts", "input_tokens", "output_tokens"])
def test_a_missing_key_is_named_even_on_the_first_line(tmp_path: Path, key: str) -> None:
    line = {k: v for k, v in GOOD.items() if k != key}
    with pytest.raises(UserError, match=rf"t\.jsonl:1: no {key}"):
        load_trace(write(tmp_path / "t.jsonl", line))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_refused_with_their_line(
    tmp_path: Path, number: str
) -> None:
    line = json.dumps(GOOD).replace("0.5", number)
    with pytest.raises(UserError, match=r"t\.jsonl:2: not JSON"):
        requests_of(write(tmp_path / "t.jsonl", GOOD, line))


@pytest.mark.parametrize("line", ["{", "hello", '{"a": 1} x'])
def test_a_line_that_is_not_json_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match=r"t\.jsonl:2: not JSON"):
        requests_of(write(tmp_path / "t.jsonl", GOOD, line))


def test_a_line_that_is_not_an_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"t\.jsonl:2: \[1,2\], expected one JSON object"):
        requests_of(write(tmp_path / "t.jsonl", GOOD, "[1, 2]"))


def test_a_cut_off_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    random = np.random.default_rng(0).integers(0, 2**31, 5000).tolist()
    whole = gzip.compress((json.dumps(GOOD | {"input_tokens": random}) + "\n").encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged gzip after line 0"):
        load_trace(path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match="empty"):
        requests_of(path)


def test_a_directory_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a directory"):
        requests_of(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        requests_of(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("name", ["agent", "branchy", "chat"])
def test_the_golden_traces_keep_their_lengths(shared: Path, name: str) -> None:
    path = shared / "golden" / f"{name}.jsonl.gz"
    expected = json.loads((shared / "golden" / "paper" / f"{name}.json").read_text())
    trace = load_trace(path).trace
    assert trace.requests == expected["requests"]
    assert int(trace.input_tokens.sum()) == expected["input_tokens"]
