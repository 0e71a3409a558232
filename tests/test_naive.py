"""The naive reference itself: against the shared golden results, and by hand on tiny traces."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import make_golden
import naive
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import BlockCache, Entry, RadixCache, Request, Shape
from strategies import Case, cases, variants

MODELS = {
    "hybrid-7b": Shape(4, 24, 28, 4096, 128),
    "ssm-light": Shape(24, 12, 36, 2048, 16),
    "ssm-heavy": Shape(4, 32, 36, 4096, 128),
}
THREE = Shape(2, 1, 1, 8, 2)  # a state costs as much as 3 tokens of KV


def serve(cache: naive.Cache, *pairs: tuple[str, str]) -> naive.Result:
    """Replay (input, output) pairs whose characters are the tokens."""
    requests = [
        Request(0, i, i, tuple(map(ord, text)), tuple(map(ord, answer)))
        for i, (text, answer) in enumerate(pairs)
    ]
    return naive.replay(cache, requests, check=True)


def room(tokens: float) -> float:
    """Return the bytes of that many tokens of KV of the shape THREE."""
    return tokens * THREE.kv_bytes_per_token


def entries(cache: RadixCache) -> set[tuple[str, bool]]:
    """Return the text from the root to each node, and whether the node holds a state."""
    found = set()
    for node in cache.nodes():
        above, edges = node, []
        while above.parent:
            edges.append("".join(map(chr, above.edge)))
            above = above.parent
        found.add(("".join(reversed(edges)), node.state))
    return found


def missed(row: dict) -> dict[str, int]:
    return {cause: tokens for cause, tokens in row["causes"].items() if tokens}


# --- accounting ---


def test_shape_of_the_papers_model():
    # "One state = 26.8 MB, KV = 65.5 KB per token"
    model = MODELS["hybrid-7b"]
    assert model.kv_bytes_per_token == 65_536
    assert model.state_bytes == 26_787_840


def test_flops_by_hand():
    # one layer each, D = 2, N = 3, L = 5: 8*5*4 + 4*25*2, 16*5*4, 12*5*4 + 16*5*2*3 + 10*5*2
    assert Shape(1, 0, 0, 2, 3).flops(5) == 360
    assert Shape(0, 0, 1, 2, 3).flops(5) == 320
    assert Shape(0, 1, 0, 2, 3).flops(5) == 820


def test_three_means_three():
    assert THREE.state_bytes == room(3)


# --- admission ---


def test_shared_prefix_is_reused_at_its_third_occurrence():
    # The second occurrence finds KV but no state; its branch point gets one, which the third finds.
    rows = serve(RadixCache(math.inf, THREE), ("abcx", ""), ("abcy", ""), ("abcz", ""))
    assert rows.reused == [0, 0, 3]
    assert [row["matched"] for row in rows] == [0, 3, 3]
    assert [missed(row) for row in rows] == [
        {"cold": 4},
        {"no_checkpoint": 3, "cold": 1},
        {"cold": 1},
    ]


def test_conversation_reuses_its_last_answer():
    rows = serve(RadixCache(math.inf, THREE), ("abc", "de"), ("abcdefg", "h"))
    assert rows.reused == [0, 5]


def test_input_that_ends_inside_an_edge_branches_there():
    cache = RadixCache(math.inf, THREE)
    rows = serve(cache, ("abcd", ""), ("ab", ""), ("ab", ""))
    assert entries(cache) == {("ab", True), ("abcd", True)}
    assert rows.reused == [0, 0, 2]


def test_divergence_inside_the_output_gets_no_state():
    # "abx" is only known to diverge when the answer is there: too late to checkpoint its position.
    first = ("ab", "xy"), ("ab", "xz")
    cache = RadixCache(math.inf, THREE)
    serve(cache, *first)
    assert entries(cache) == {("ab", True), ("abx", False), ("abxy", True), ("abxz", True)}
    # An input that leaves the tree at that node would split no edge, so it has no branch point.
    cache = RadixCache(math.inf, THREE)
    rows = serve(cache, *first, ("abxw", ""), ("abxv", ""))
    assert ("abx", False) in entries(cache)
    assert rows.reused == [0, 0, 2, 2]
    assert missed(rows[3]) == {"no_checkpoint": 1, "cold": 1}


def test_same_sequence_again_adds_nothing():
    cache = RadixCache(math.inf, THREE)
    rows = serve(cache, ("ab", "cd"), ("abcd", ""))
    assert rows.reused == [0, 4]
    assert (cache.states, cache.kv_tokens) == (1, 4)


def test_branch_point_at_the_end_of_the_sequence_is_one_state():
    cache = RadixCache(math.inf, THREE)
    serve(cache, ("abcd", ""), ("ab", ""))
    assert cache.states == 2


def test_bypassed_sequence_changes_nothing():
    # "abcdefgh" needs 8 + 3 > 10; its prefix was never resident, so its loss is not the eviction's.
    cache = RadixCache(room(10), THREE)
    rows = serve(cache, ("ab", ""), ("abcdefgh", ""), ("abcd", ""))
    assert rows.reused == [0, 2, 2]
    assert [row["bypassed"] for row in rows] == [0, 1, 1]
    assert rows[-1]["evictions"] == 0
    assert missed(rows[-1]) == {"not_admitted": 2}


def test_look_up_of_a_bypassed_sequence_still_touches():
    # "aa" is looked up by a request that is too long to stay; so "bb" is the older one.
    for policy in ("sglang+", "marconi"):
        cache = RadixCache(room(12), THREE, policy)
        serve(cache, ("aa", ""), ("bb", ""), ("aaccccccccc", ""), ("eeee", ""))
        assert cache.bypassed == 1
        assert entries(cache) == {("aa", True), ("eeee", True)}


@pytest.mark.parametrize("tokens", [7, 8])
def test_bypass_begins_where_one_state_no_longer_fits(tokens):
    rows = serve(RadixCache(room(10), THREE), ("abcdefgh"[:tokens], ""))
    assert rows[0]["bypassed"] == (tokens == 8)


def test_policy_without_ends_keeps_leaves_without_state():
    cache = RadixCache(math.inf, THREE, admits=("branch_point",))
    serve(cache, ("ab", ""), ("abcd", ""))
    assert entries(cache) == {("abcd", False)}  # no node is left that has one child and no state
    cache = RadixCache(math.inf, THREE, admits=("branch_point",))
    rows = serve(cache, ("ab", ""), ("abcd", ""), ("abx", ""), ("aby", ""))
    assert entries(cache) == {("ab", True), ("abcd", False), ("abx", False), ("aby", False)}
    assert rows.reused == [0, 0, 0, 2]


# --- eviction ---


def test_marconi_merges_a_node_with_one_child():
    # 5 + 2 x 3 > 8. The inner node gives its state, its KV stays; the other half is protected.
    cache = RadixCache(room(8), THREE, "marconi")
    rows = serve(cache, ("ab", "c"), ("abcd", "e"), ("abcx", ""))
    assert rows[1]["evictions"] == 1
    assert (rows[1]["kv_tokens"], rows[1]["states"]) == (5, 1)
    assert missed(rows[2]) == {"state_evicted": 3, "cold": 1}


def test_sglang_evicts_the_newest_leaf_if_there_is_no_other():
    cache = RadixCache(room(8), THREE, "sglang+")
    rows = serve(cache, ("ab", "c"), ("abcd", "e"), ("abcde", ""))
    assert (rows[1]["kv_tokens"], rows[1]["states"], rows[1]["evictions"]) == (3, 1, 1)
    assert missed(rows[2]) == {"kv_evicted": 2}


def test_sglang_look_up_touches_the_whole_path_and_marconi_one_node():
    # Looking "abc" up touches "ab" in both; the node below "abx" is touched in neither.
    for policy, touched in (("sglang+", {2, 4}), ("marconi", {4})):
        cache = RadixCache(math.inf, THREE, policy)
        serve(cache, ("ab", ""), ("abcd", ""), ("abxx", ""))
        before = {node: node.time for node in cache.nodes()}
        cache.look_up(tuple(map(ord, "abcde")))
        assert {node.depth for node in before if node.time != before[node]} == touched


def test_least_recently_used_goes_first():
    for policy in ("sglang+", "marconi"):
        cache = RadixCache(room(10), THREE, policy)
        serve(cache, ("aa", ""), ("bb", ""), ("aa", ""), ("cc", ""))
        assert entries(cache) == {("aa", True), ("cc", True)}


def test_alpha_prefers_what_saves_more_per_byte():
    # The longer sequence saves more per byte, and is older.
    for alpha, kept in ((0.0, "bb"), (1.5, "aaaa")):
        cache = RadixCache(room(16), THREE, alpha=alpha)
        serve(cache, ("aaaa", ""), ("bb", ""), ("ccc", ""))
        assert entries(cache) == {(kept, True), ("ccc", True)}


def test_equal_scores_evict_the_smaller_depth():
    # Of two candidates one is newest (1 + 0), the other the most efficient (0 + 1).
    cache = RadixCache(room(16), THREE, alpha=1.0)
    serve(cache, ("aaaa", ""), ("bb", ""), ("ccc", ""))
    assert entries(cache) == {("aaaa", True), ("ccc", True)}


def test_equal_scores_and_depths_evict_the_older_node():
    cache = RadixCache(room(12), THREE, score=lambda recency, value: 0.0)
    serve(cache, ("aa", ""), ("bb", ""), ("aa", ""), ("ccc", ""))
    assert entries(cache) == {("bb", True), ("ccc", True)}


def test_recency_is_linear_in_time():
    # Insertions at times 2, 4, 6, 8; the look-up at 9 touches the first; the last is protected.
    recencies = []

    def score(recency: float, value: float) -> float:
        recencies.append(recency)
        return recency

    serve(
        RadixCache(room(20), THREE, score=score),
        *[("aa", ""), ("bb", ""), ("cc", ""), ("dd", ""), ("aax", "")],
    )
    assert sorted(recencies[:4]) == [0.0, 0.4, 0.8, 1.0]  # times 4, 6, 8, 9


def test_stateless_node_left_with_one_child_is_merged():
    # 5 + 4 x 3 fit into 17; "ee" makes one victim necessary, the least recently used leaf "abxy".
    cache = RadixCache(room(17), THREE, "sglang+")
    serve(cache, ("ab", "xy"), ("ab", "xz"), ("e", ""))
    assert entries(cache) == {("ab", True), ("abxz", True), ("e", True)}
    assert cache.kv_tokens == 5


def test_node_with_a_state_stays_when_its_last_child_goes():
    cache = RadixCache(room(12), THREE, "sglang+")
    serve(cache, ("ab", ""), ("abcd", ""), ("ab", ""), ("ee", ""))
    assert entries(cache) == {("ab", True), ("ee", True)}


def test_value_is_the_one_of_the_last_touch():
    seen: list[Entry] = []

    def value(entry: Entry) -> float:
        seen.append(entry)
        return entry.hits

    cache = RadixCache(
        room(10), THREE, value=value, score=lambda recency, value: value, normalised=False
    )
    serve(cache, ("aa", ""), ("aa", ""), ("bb", ""))
    assert seen[-1].hits == 0
    assert max(entry.hits for entry in seen) == 1
    serve(cache, ("cc", ""))  # no hits beats one hit
    assert entries(cache) == {("aa", True), ("cc", True)}
    serve(cache, ("dd", ""), ("dd", ""), ("ee", ""))  # "aa" and "dd" were hit once, "aa" is older
    assert cache.floor == 1
    assert entries(cache) == {("dd", True), ("ee", True)}


# --- the other policies ---


def test_blocks_go_oldest_first_and_deepest_first():
    # Three blocks fit. The third block of "ccddee" costs "aabb" its deeper block, then the other.
    pairs = ("aabb", ""), ("ccdd", ""), ("ccddee", ""), ("aab", "")
    cache = BlockCache(room(3 * (2 + 3)), THREE, block=2)
    serve(cache, *pairs[:2])
    assert {"".join(map(chr, block)) for block in cache.times} == {"aa", "cc", "ccdd"}
    rows = serve(BlockCache(room(3 * (2 + 3)), THREE, block=2), *pairs)
    assert rows.reused == [0, 0, 4, 0]
    assert missed(rows[3]) == {"kv_evicted": 2, "grid": 1}


def test_blocks_of_a_sequence_bigger_than_the_cache_lose_its_tail():
    cache = BlockCache(room(3 * (2 + 3)), THREE, block=2)
    rows = serve(cache, ("aabbccdde", ""), ("aabbccdde", ""))
    assert [row["evictions"] for row in rows] == [1, 2]
    assert rows.reused == [0, 6]
    assert missed(rows[1]) == {"kv_evicted": 2, "grid": 1}


def test_bounds():
    pairs = ("abcx", "1"), ("abcy", "2"), ("abcx1", "")
    assert serve(naive.NoCache(), *pairs).reused == [0, 0, 0]
    assert serve(RadixCache(math.inf, THREE), *pairs).reused == [0, 0, 5]
    assert serve(naive.CeilingCache(THREE), *pairs).reused == [0, 3, 5]
    assert missed(serve(naive.NoCache(), *pairs)[1]) == {"not_admitted": 3, "cold": 1}


# --- properties ---


@given(cases(), st.sampled_from(naive.POLICIES), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_invariants_hold_after_every_request(case: Case, policy: str, alpha: float):
    result = naive.run(
        policy,
        case.requests,
        case.capacity_bytes,
        case.shape,
        alpha=alpha,
        multiplier=2,
        block=case.block,
        check=True,
    )
    ceiling = naive.run("ceiling", case.requests, 0, case.shape).reused
    assert all(a <= b for a, b in zip(result.reused, ceiling, strict=True))


@given(cases(), variants(), st.sampled_from(["logical", "seconds"]))
def test_invariants_hold_for_any_variant(case: Case, variant: dict, clock: str):
    cache = RadixCache(case.capacity_bytes, case.shape, **variant)
    rows = naive.replay(
        cache, case.requests, clock=clock, check=True
    )  # raises if one does not hold
    assert len(rows) == len(case.requests)
    assert all(row["bytes"] <= case.capacity_bytes for row in rows)


@given(cases())
@settings(max_examples=50)
def test_bootstrap_is_the_best_alpha_of_its_window(case: Case):
    args = case.requests, case.capacity_bytes, case.shape
    result = naive.marconi_bootstrap(*args, multiplier=2)
    first, tuned = result.first_eviction_request, result.tuned_alpha
    start = naive.run("marconi", *args, alpha=0.0)
    evictions = [row["evictions"] for row in start]
    assert first == next((i for i, count in enumerate(evictions, 1) if count), None)
    assert (tuned is not None) == (first is not None and 2 * first <= len(result))
    window_end = 2 * first if tuned is not None else len(result)
    assert result[:window_end] == start[:window_end]


# --- golden results ---


def shared_cases(shared: Path, name: str):
    """Return the shared trace, its file of expected results, and its cases by capacity."""
    expected = json.loads((shared / "golden" / "paper" / f"{name}.json").read_text())
    with gzip.open(shared / "golden" / f"{name}.jsonl.gz") as lines:
        requests = [
            Request(
                row["session_id"],
                row["turn_id"],
                row["ts"],
                tuple(row["input_tokens"]),
                tuple(row["output_tokens"]),
            )
            for row in map(json.loads, lines)
        ]
    by_capacity: dict[int, list[dict]] = {}
    for case in expected["cases"]:
        by_capacity.setdefault(case["capacity_bytes"], []).append(case)
    return requests, expected, [by_capacity[size] for size in sorted(by_capacity)]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=[pytest.mark.slow] if (name, size) != ("branchy", 0) else [])
        for name in ("branchy", "agent", "chat")
        for size in range(3)
    ],
)
def test_shared_results(shared: Path, name: str, size: int):
    requests, _, sizes = shared_cases(shared, name)
    assert len(sizes) == 3
    for case in sizes[size]:
        policy, params = case["policy"], dict(case["params"])
        if params.get("alpha") == "bootstrap":
            policy = "marconi_bootstrap"
            del params["alpha"]
        result = naive.run(
            policy, requests, case["capacity_bytes"], MODELS[case["model"]], **params
        )
        found = {
            "reused": result.reused,
            "matched": [row["matched"] for row in result],
            "tuned_alpha": result.tuned_alpha,
            "first_eviction_request": result.first_eviction_request,
        } | {key: result[-1][key] for key in ("evictions", "bypassed", "states", "kv_tokens")}
        known = found.keys() & case.keys()
        assert {key: found[key] for key in known} == {key: case[key] for key in known}


@pytest.mark.parametrize(
    "name",
    ["branchy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("agent", "chat"))],
)
def test_shared_results_without_limit(shared: Path, name: str):
    requests, expected, _ = shared_cases(shared, name)
    unbounded = naive.run("unbounded", requests, 0, MODELS["hybrid-7b"])
    assert unbounded.reused == expected["unbounded_reused"]
    assert naive.run("ceiling", requests, 0, MODELS["hybrid-7b"]).reused == expected["seen"]


@pytest.mark.parametrize("name", make_golden.TRACES)
def test_own_golden_files_are_up_to_date(name: str):
    assert (make_golden.FOLDER / f"{name}.json").read_text() == make_golden.content(name)
