"""A smaller workload keeps the shape of the larger one, and tokens agree exactly as far as its index says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from strategies import Case, cases
from support import workload
from test_kernels import bounded

from marconi_sim import load_trace
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.index.requests import Index
from marconi_sim.simulation.simulate import replay_inputs
from marconi_sim.trace.export.drawn_tokens import Tokens
from marconi_sim.trace.export.reduce import reduce_workload


def agreement(a: np.ndarray, b: np.ndarray) -> int:
    shorter = min(a.size, b.size)
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(different[0]) if different.size else shorter


@given(cases())
@bounded
def test_tokens_agree_exactly_as_far_as_the_sequences_did(case: Case):
    index, requests = replay_inputs(workload(case.requests))
    tokens = Tokens(index, 1000, seed=3)
    drawn = [tokens.between(0, node) for node in requests.end_node]
    originals = [np.array(request.input + request.output) for request in case.requests]
    for a, x in zip(drawn, originals, strict=True):
        assert a.size == x.size
        for b, y in zip(drawn, originals, strict=True):
            assert agreement(a, b) == agreement(x, y)


def test_tokens_from_the_middle_of_an_edge():
    tokens = Tokens(Index(np.array([-1, 0, 1], np.int32), np.array([0, 5, 9], np.int32)), 50, 0)
    whole = tokens.between(0, 2)
    assert whole.size == 9
    for start in range(10):
        assert np.array_equal(tokens.between(start, 2), whole[start:])
    assert np.array_equal(tokens.between(2, 1), whole[2:5])
    assert not np.array_equal(
        whole,
        Tokens(Index(np.array([-1, 0, 1], np.int32), np.array([0, 5, 9], np.int32)), 50, 1).between(
            0, 2
        ),
    )


def test_too_small_a_vocabulary_is_refused():
    index = Index(np.array([-1, 0, 0, 0], np.int32), np.array([0, 1, 1, 1], np.int32))
    assert {int(Tokens(index, 3, 0).between(0, node)[0]) for node in (1, 2, 3)} == {0, 1, 2}
    with pytest.raises(UserError, match="vocabulary of 2 tokens: too small"):
        Tokens(index, 2, 0)


def test_a_reduced_workload_keeps_who_shares_with_whom():
    whole = load_trace("swebench")
    small = reduce_workload(whole, 300, 200)
    assert small.requests == 300
    assert small.name == "swebench[first 300 requests, lengths x 0.00962]"
    assert small.trace.parent.size < whole.trace.parent.size / 10
    assert (small.trace.depth[1:] > small.trace.depth[small.trace.parent[1:]]).all()
    unscaled = reduce_workload(whole, 300)
    rows = whole.order[:300]
    assert np.array_equal(unscaled.trace.input_tokens, whole.trace.input_tokens[rows])
    assert np.array_equal(unscaled.trace.output_tokens, whole.trace.output_tokens[rows])
    assert np.array_equal(unscaled.trace.parent, small.trace.parent)
    ratio = small.trace.input_tokens / unscaled.trace.input_tokens
    assert np.median(ratio) == pytest.approx(200 / unscaled.trace.input_tokens.max(), rel=0.1)
    assert small.trace.input_tokens.max() == pytest.approx(200, rel=0.1)


def test_nothing_to_reduce_is_the_same_workload():
    whole = load_trace("swebench")
    assert reduce_workload(whole) is whole
    assert reduce_workload(whole, 10**9, 10**9) is whole


@pytest.mark.parametrize(("requests", "longest"), [(0, None), (None, 0), (-3, 5)])
def test_what_cannot_be_reduced(requests: int | None, longest: int | None):
    with pytest.raises(UsageError, match="expected a whole number from 1"):
        reduce_workload(load_trace("swebench"), requests, longest)
