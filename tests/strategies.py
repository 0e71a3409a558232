"""Small traces that make splits, merges, bypasses and evictions happen all the time.

`cases()` is for hypothesis, `random_case(rng)` draws from the same distribution without its
overhead, for bulk runs: both feed `_build_case` with a source of integers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from naive import Entry, Request, Shape, Tokens

SHAPES = (
    Shape(16, 1, 1, 1, 1),  # a state costs as much as 0.53 tokens of KV
    Shape(2, 1, 1, 8, 2),  # 3 tokens
    Shape(1, 1, 0, 4, 1),  # 5.5 tokens
    Shape(1, 2, 1, 4, 4),  # 20 tokens
    Shape(0, 1, 1, 4, 4),  # no attention: KV is free
    Shape(4, 0, 1, 8, 1),  # no recurrent layers: states are free
)

Integer = Callable[[int, int], int]  # (low, high), both included


class Case(NamedTuple):
    """A trace in processing order, with a cache to replay it in."""

    requests: list[Request]
    shape: Shape
    capacity_bytes: int
    block: int


def gdsf(entry: Entry) -> float:
    """Greedy dual size frequency: a value that depends on hits and on the floor."""
    size = entry.edge_kv_bytes + entry.state_bytes
    return entry.floor + entry.hits * entry.flops / size if size else entry.floor


VALUES: dict[str, Callable[[Entry], float] | None] = {
    "policy's own": None,
    "gdsf": gdsf,
    "depth": lambda entry: float(entry.depth),
    "smallest first": lambda entry: float(entry.edge_kv_bytes + entry.state_bytes),
}
SCORES: dict[str, Callable[[float, float], float] | None] = {
    "policy's own": None,
    "value": lambda recency, value: value,
    "mostly value": lambda recency, value: 0.25 * recency + 3.0 * value - 1.0,
}


def _build_variant(integer: Integer) -> dict[str, Any]:
    def one_of(*options: Any) -> Any:
        return options[integer(0, len(options) - 1)]

    return {
        "policy": one_of("marconi", "sglang+"),
        "alpha": one_of(0.0, 0.1, 0.5, 1.0, 2.0, 10.0),
        "admits": tuple(
            place for place in ("branch_point", "input_end", "sequence_end") if integer(0, 2) > 0
        )
        + tuple(place for place in ("interval", "chunk_end") if integer(0, 2) == 2),
        "interval": one_of(1, 2, 3, 7),
        "chunk": one_of(1, 2, 3, 7),
        "grid": one_of(1, 1, 1, 2, 3, 5),
        "evicts": one_of("at_most_one_child", "leaves"),
        "touches": one_of("reused_node", "path"),
        "value": VALUES[one_of(*VALUES)],
        "score": SCORES[one_of(*SCORES)],
        "normalised": one_of(True, False),
    }


def _build_turn(
    integer: Integer,
    earlier: list[Request],
    last: Request | None,
    prompts: list[Tokens],
    letters: int,
) -> tuple[Tokens, Tokens]:
    """Return input and output of a request that repeats others in one of the usual ways."""

    def some(low: int, high: int) -> Tokens:
        return tuple(integer(0, letters - 1) for _ in range(integer(low, high)))

    new, output = some(0, 6), some(0, 5)
    kinds = ["fresh", "fresh"]
    if last is not None:
        kinds += ["continued"] * 4 + ["edited", "regenerated"]
    if earlier:
        kinds += ["branched", "identical", "strict prefix"]
    kind = kinds[integer(0, len(kinds) - 1)]
    if kind == "fresh":
        head = prompts[integer(0, len(prompts) - 1)]
        return head + new, output
    if kind in ("continued", "edited", "regenerated"):
        assert last is not None
        if kind == "continued":
            return last.input + last.output + new, output
        if kind == "edited":
            return last.input[: integer(0, len(last.input) - 1)] + new, output
        return last.input, output
    other = earlier[integer(0, len(earlier) - 1)]
    sequence = other.input + other.output
    if kind == "branched":
        return sequence[: integer(0, len(sequence))] + new, output
    if kind == "identical":
        return other.input, other.output
    end = integer(1, len(sequence))
    input_end = integer(1, end)
    return sequence[:input_end], sequence[input_end:end]


def _build_case(integer: Integer, fewest: int) -> Case:
    letters = integer(2, 3)
    prompts: list[Tokens] = [()] + [
        tuple(integer(0, letters - 1) for _ in range(integer(1, 8))) for _ in range(integer(0, 2))
    ]
    if integer(0, 5) == 0:
        prompts.append(tuple(integer(0, letters - 1) for _ in range(integer(20, 40))))
    sessions = integer(1, 6)
    requests: list[Request] = []
    last: dict[int, Request] = {}
    arrival = 0.0
    for _ in range(integer(fewest, 20)):
        session = integer(0, sessions - 1)
        if session in last and last[session].turn == 4:
            continue
        tokens, output = _build_turn(integer, requests, last.get(session), prompts, letters)
        arrival += integer(0, 2) / 2
        request = Request(
            session=session,
            turn=last[session].turn + 1 if session in last else 0,
            arrival=arrival,
            input=tokens or (0,),
            output=output,
        )
        last[session] = request
        requests.append(request)
    requests.sort(key=lambda request: (request.arrival, request.session, request.turn))
    shape = SHAPES[integer(0, len(SHAPES) - 1)]
    capacity = (
        integer(0, 40) * shape.kv_bytes_per_token
        + integer(0, 6) * shape.state_bytes
        + integer(0, 1)
    )
    return Case(requests, shape, capacity, block=integer(1, 4))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Traces of 1 to 20 requests; shrinks towards few requests, short sequences, a small cache."""
    return _build_case(lambda low, high: draw(st.integers(low, high)), fewest=1)


@st.composite
def variants(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `RadixCache` in any combination."""
    return _build_variant(lambda low, high: draw(st.integers(low, high)))


def random_case(rng: random.Random) -> Case:
    """Return a case of about 5 to 20 requests."""
    return _build_case(rng.randint, fewest=6)


def random_variant(rng: random.Random) -> dict[str, Any]:
    return _build_variant(rng.randint)
