"""States inside edges: ends of chunks, multiples of an interval, a grid; compared with the token-level reference."""

from __future__ import annotations

import random
from typing import Any

import any_policy
import numpy as np
import pytest
from naive import Request, Shape
from strategies import Case, random_case
from support import kernel_case, step_by_step
from test_kernels import HUNDREDS, MANY, assert_variant_agrees, forest, hundreds

from marconi_sim.policy import Parameter, RadixPolicy

PLAIN: dict[str, Any] = {
    "policy": "marconi", "alpha": 0.5, "admits": ("branch_point", "sequence_end"), "value": None, "score": None,
    "evicts": "at_most_one_child", "touches": "reused_node", "normalised": True,
}  # fmt: skip
PLACES: dict[str, dict[str, Any]] = {
    "chunks of 7": {"admits": ("chunk_end",), "chunk": 7},
    "chunks of 7 and the branch point": {"admits": ("branch_point", "chunk_end"), "chunk": 7},
    "every 7 tokens": {"admits": ("interval",), "interval": 7},
    "all places on a grid of 3": {
        "admits": ("branch_point", "input_end", "sequence_end", "interval", "chunk_end"),
        "interval": 5, "chunk": 7, "grid": 3,
    },
    "leaves, whole path": {"admits": ("chunk_end",), "chunk": 7, "evicts": "leaves", "touches": "path"},
}  # fmt: skip


@pytest.mark.parametrize("places", PLACES)
def test_random_traces(places: str):
    for seed in range(MANY // 2):
        rng = random.Random(f"{places} {seed}")
        case = random_case(rng)
        assert_variant_agrees({**PLAIN, **PLACES[places]}, rng.choice(("logical", "seconds")), case)


@pytest.mark.slow
@pytest.mark.parametrize("places", PLACES)
def test_a_thousand_random_traces(places: str):
    for seed in range(1000, 2000):
        case = random_case(random.Random(f"{places} {seed}"))
        assert_variant_agrees({**PLAIN, **PLACES[places]}, "logical", case)


@pytest.mark.parametrize("places", PLACES)
def test_hundreds_of_live_nodes(places: str):
    requests, capacity = hundreds()
    case = Case(requests[:400], HUNDREDS, capacity // 4, block=4)
    assert_variant_agrees({**PLAIN, **PLACES[places]}, "logical", case)


def rows(requests: list[Request], capacity: int, **variant: Any) -> list[dict[str, Any]]:
    policy = any_policy.policy_for({**PLAIN, **variant}, "logical")
    return step_by_step(policy, kernel_case(requests, Shape(2, 1, 1, 8, 2), capacity), check=True)


def test_worked_by_hand():
    # The first prompt of 10 tokens is computed in chunks that end at 4 and 8. The second shares 9 tokens, reuses 8 and
    # computes the rest in one chunk that would end at 12: beyond its input.
    first = Request(0, 0, 0.0, tuple(range(10)), (99,))
    second = Request(1, 0, 1.0, (*range(9), 50), ())
    found = rows([first, second], 10**9, admits=("chunk_end",), chunk=4)
    assert [row["reused"] for row in found] == [0, 8]
    assert [row["states"] for row in found] == [2, 2]
    assert found[1]["causes"]["no_checkpoint"] == 1
    # On a grid of 3 the end of the first prompt, 10, is rounded to 9, and that of the second too: it is there already.
    found = rows([first, second], 10**9, admits=("input_end",), grid=3)
    assert [row["reused"] for row in found] == [0, 9]
    assert [row["states"] for row in found] == [1, 1]
    # On a grid of 4 to 8: the token between is lost to the rounding.
    found = rows([first, second], 10**9, admits=("input_end",), grid=4)
    assert [row["reused"] for row in found] == [0, 8]
    assert found[1]["causes"]["grid"] == 1


def test_the_trace_keeps_its_index():
    requests = forest(random.Random(3), 100, 12)
    case = kernel_case(requests, HUNDREDS, 10**5)
    before = [array.copy() for array in case.index]
    policy = any_policy.policy_for({**PLAIN, **PLACES["every 7 tokens"]}, "logical")
    run = policy._start(*case, False)
    run.advance(0, 50, {"alpha": 0.5, "value_kind": 0, "score_kind": 0})
    fork = run.fork()
    fork.advance(50, 100, {"alpha": 0.5, "value_kind": 0, "score_kind": 0})
    assert run.cache.sizes[0] < fork.cache.sizes[0]
    assert all(np.array_equal(*pair) for pair in zip(before, case.index, strict=True))
    run.advance(50, 100, {"alpha": 0.5, "value_kind": 0, "score_kind": 0})
    assert np.array_equal(run.outcome.reused[50:], fork.outcome.reused[50:])


def test_what_a_policy_must_declare():
    with pytest.raises((TypeError, RuntimeError), match="chunk_end needs a parameter 'chunk'"):
        type("Chunky", (RadixPolicy,), {"admits": ("chunk_end",)})
    with pytest.raises((TypeError, RuntimeError), match="must be a whole number of tokens"):
        type("Gridded", (RadixPolicy,), {"grid": Parameter(1, "grid")})
