"""Continuations inferred from block hashes: against a plain version of the stated rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marconi_sim.trace.importing.continuations import continued_by, conversations, sequences

NONE = -1


def naive_continued_by(
    full: list[tuple[int, ...]], inputs: list[int], outputs: list[int], arrival: list[float]
) -> list[int]:
    """The rule of the module's docstring, one clause after the other."""
    after: dict[tuple[int, ...], set[int]] = {}
    for ids in full:
        for k in range(len(ids)):
            after.setdefault(ids[:k], set()).add(ids[k])
    successor = [NONE] * len(full)
    for later in sorted(range(len(full)), key=lambda i: arrival[i]):
        fitting = [
            a
            for a in range(len(full))
            if full[a]
            and full[later][: len(full[a])] == full[a]
            and inputs[a] + outputs[a] < inputs[later]
            and arrival[a] < arrival[later]
            and len(after.get(full[a], ())) <= 1
            and successor[a] == NONE
        ]
        if fitting:
            best = max(fitting, key=lambda a: (len(full[a]), inputs[a] + outputs[a], a))
            successor[best] = later
    return successor


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], list[int], list[float]]:
    """Small logs with blocks of 4 tokens whose ids say their whole prefix, as block hashes do."""
    count = draw(st.integers(1, 12))
    numbers: dict[tuple[int, ...], int] = {}
    full, inputs, outputs, arrival = [], [], [], []
    for _ in range(count):
        choices = draw(st.lists(st.integers(0, 1), max_size=4))
        prefixes = [tuple(choices[: k + 1]) for k in range(len(choices))]
        full.append(tuple(numbers.setdefault(p, len(numbers)) for p in prefixes))
        inputs.append(max(1, 4 * len(choices) + draw(st.integers(0, 3))))
        outputs.append(draw(st.integers(0, 6)))
        arrival.append(float(draw(st.integers(0, 8))))
    order = np.argsort(arrival, kind="stable").tolist()
    return tuple([column[i] for i in order] for column in (full, inputs, outputs, arrival))  # type: ignore[return-value]


def as_arrays(ids: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(i, np.int64) for i in ids]


@settings(max_examples=200, deadline=None)
@given(logs())
def test_the_rule(
    log: tuple[list[tuple[int, ...]], list[int], list[int], list[float]],
) -> None:
    full, inputs, outputs, arrival = log
    found = continued_by(as_arrays(full), np.array(inputs), np.array(outputs), np.array(arrival))
    assert found.tolist() == naive_continued_by(full, inputs, outputs, arrival)


def infer(
    full: list[tuple[int, ...]], inputs: list[int], outputs: list[int], arrival: list[float]
) -> list[int]:
    lists = (np.array(inputs), np.array(outputs), np.array(arrival, float))
    return continued_by(as_arrays(full), *lists).tolist()


def test_a_shared_prompt_is_not_continued() -> None:
    # Request 0 is the bare prompt (block 0); two conversations go on behind it.
    full = [(0,), (0, 1), (0, 2), (0, 1, 3)]
    assert infer(full, [5, 9, 9, 14], [1, 1, 1, 1], [0, 1, 2, 3]) == [NONE, 3, NONE, NONE]


def test_no_room_for_the_output_is_no_continuation() -> None:
    assert infer([(0,), (0, 1)], [5, 9], [4, 1], [0, 1]) == [NONE, NONE]
    assert infer([(0,), (0, 1)], [5, 9], [3, 1], [0, 1]) == [1, NONE]


def test_requests_of_the_same_moment_do_not_continue_each_other() -> None:
    assert infer([(0,), (0, 1)], [5, 9], [1, 1], [7, 7]) == [NONE, NONE]


def test_an_input_without_a_full_block_continues_nothing() -> None:
    assert infer([(), ()], [1, 3], [0, 0], [0, 1]) == [NONE, NONE]


def test_conversations_are_named_by_their_first_request() -> None:
    first, turn = conversations(np.array([2, NONE, 4, NONE, NONE]))
    assert first.tolist() == [0, 1, 0, 3, 0]
    assert turn.tolist() == [0, 0, 1, 0, 2]


@pytest.mark.parametrize("tail", [90, 91])
def test_equal_inputs_stay_equal_where_one_is_continued(tail: int) -> None:
    # Blocks of 4: input 6 ends inside its second block (id 90); its continuation has block 5 there.
    blocks = as_arrays([(0, 90), (0, tail), (0, 5, 6)])
    inputs, outputs = np.array([6, 6, 11]), np.array([3, 2, 1])
    found = sequences(blocks, inputs, outputs, np.array([2, NONE, NONE]), 4)
    assert found[0].tolist() == [0, 5, 6]
    assert found[1].tolist() == ([0, 5] if tail == 90 else [0, 91])
    assert found[2].tolist() == [0, 5, 6]


def test_tails_resolve_through_a_chain_inside_one_block() -> None:
    # 5 -> 6 -> 9 tokens: the first two end inside the block that the third fills.
    blocks = as_arrays([(0, 90), (0, 91), (0, 7, 92)])
    inputs, outputs = np.array([5, 7, 10]), np.array([1, 1, 1])
    found = sequences(blocks, inputs, outputs, np.array([1, 2, NONE]), 4)
    assert [f.tolist() for f in found] == [[0, 7], [0, 7], [0, 7, 92]]
