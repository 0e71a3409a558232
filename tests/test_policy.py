"""Policies as objects: parameters, loading, declarations, and checks that can fail."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import any_policy
import numpy as np
import pytest
from naive import Request
from support import kernel_case
from test_kernels import HUNDREDS, forest

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.outcome import EVICTIONS, KV_TOKENS, STATES
from marconi_sim.core.radix.audit import COMPLAINTS, audit_radix
from marconi_sim.core.radix.cache import HAD_STATE, NODE, STATE
from marconi_sim.policy import BlockPolicy, BoundPolicy, Parameter, Policy, RadixPolicy
from marconi_sim.policy.base import CheckError
from marconi_sim.policy.load import load_policy

SHIPPED = {
    "ceiling": (BoundPolicy, {}),
    "marconi": (RadixPolicy, {"clock": "logical", "alpha": "bootstrap", "multiplier": 5}),
    "sglang+": (RadixPolicy, {"clock": "logical"}),
    "unbounded": (RadixPolicy, {"clock": "logical"}),
    "vanilla": (BoundPolicy, {}),
    "vllm+": (BlockPolicy, {"block_size": 32}),
}

# --- what is shipped ---


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_policies_and_their_defaults(name: str):
    family, defaults = SHIPPED[name]
    policy = load_policy(name)
    assert issubclass(policy, family)
    assert policy.name == name
    assert policy.path == catalogue.shipped() / "policies" / f"{name}.py"
    assert policy().params == defaults
    assert policy.summary()
    assert all(policy.rules().values())


def test_all_shipped_policies_are_tested():
    assert set(catalogue.entries("policies")) == set(SHIPPED)


def test_the_papers_grid_of_alphas():
    grid = load_policy("marconi").bootstrap_grid
    assert grid == {"alpha": tuple(i / 10 for i in range(21))}


def test_rules_say_what_a_policy_declares():
    assert load_policy("marconi").rules()["may evict"] == "nodes with at most one child"
    assert load_policy("sglang+").rules()["may evict"] == "leaves"
    assert load_policy("sglang+").rules()["a touch refreshes"] == "every node on the path"
    assert load_policy("unbounded").rules()["capacity"] == "unlimited"
    assert load_policy("ceiling").rules()["reuses"] == "every token seen before"
    assert load_policy("vanilla").rules()["reuses"] == "nothing"


# --- parameters ---


class Sample(RadixPolicy):
    """A sample."""

    share = Parameter(0.5, "a share", low=0.0, high=1.0)
    size = Parameter(8, "a size", unit="tokens", low=1, integer=True)
    depth = Parameter(-1.0, "a depth", high=0.0, words=("auto", "none"))


def test_values_are_numbers_of_the_right_kind():
    sample = Sample(share="0.25", size="16", depth=-3)
    assert sample.params == {"clock": "logical", "share": 0.25, "size": 16, "depth": -3.0}
    assert [type(sample.params[key]) for key in ("share", "size", "depth")] == [float, int, float]
    assert (sample.share, sample.size, sample.depth) == (0.25, 16, -3.0)
    assert Sample(depth="auto").depth == "auto"
    assert Sample(size=4.0).size == 4
    assert Sample.share is Sample.parameters()["share"]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("share", 1.01, "a number from 0 to 1"),
        ("share", True, "a number from 0 to 1"),
        ("share", None, "a number from 0 to 1"),
        ("share", [1], "a number from 0 to 1"),
        ("share", "", "a number from 0 to 1"),
        ("size", 0, "a whole number from 1 up"),
        ("size", 1.5, "a whole number from 1 up"),
        ("size", "1e400", "a whole number from 1 up"),
        ("depth", 0.1, "a number up to 0 or 'auto' or 'none'"),
        ("depth", "automatic", "a number up to 0 or 'auto' or 'none'"),
        ("clock", 3, "'logical' or 'seconds'"),
    ],
)
def test_values_that_are_not_allowed(key: str, value: Any, allowed: str):
    with pytest.raises(UsageError) as error:
        Sample(**{key: value})
    assert f"parameter {key}={value} of policy" in str(error.value)
    assert f"give {allowed} (default " in str(error.value)


def test_unknown_parameter_gets_a_hint():
    with pytest.raises(
        UsageError, match=r"did you mean 'share'.* known: clock, depth, share, size"
    ):
        Sample(shar=1)


@pytest.mark.parametrize("name", ["_hidden", "two__parts"])
def test_names_that_the_compile_cache_could_not_find_again(name: str):
    with pytest.raises((TypeError, RuntimeError)):  # Python 3.11 wraps what __set_name__ raises
        type("Bad", (RadixPolicy,), {name: Parameter(1.0, "")})


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("admits", ("middle",)), ("evicts", "anything"), ("touches", "everything")],
)
def test_declarations_that_are_not_allowed(attribute: str, value: Any):
    with pytest.raises(TypeError, match=rf"Bad\.{attribute}: .* allowed: "):
        type("Bad", (RadixPolicy,), {attribute: value})


def test_a_family_has_to_say_how_it_works():
    class Nothing(Policy):
        """Nothing."""

    with pytest.raises(TypeError, match="must say what its policies declare"):
        Nothing.rules()
    with pytest.raises(TypeError, match="must say what it needs"):
        Nothing().needed_bytes(None, 1)
    with pytest.raises(TypeError, match="must replay requests"):
        Nothing().replay(None, None, None, 1)


# --- loading ---

FILE = '"""Mine."""\nfrom marconi_sim.policy import BoundPolicy\n\nclass Mine(BoundPolicy):\n    """{}."""\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(catalogue.ENVIRONMENT_VARIABLE, raising=False)
    (tmp_path / "policies").mkdir()
    return tmp_path


def test_by_path_by_option_and_by_environment(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder / "policies" / "mine.py"
    path.write_text(FILE.format("First"))
    assert load_policy(path).summary() == "First."
    assert load_policy(str(path)) is load_policy("mine", [folder])
    with pytest.raises(UsageError, match="policy 'mine': no such file and not in the catalogue"):
        load_policy("mine")
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, str(folder))
    assert load_policy("mine").path == path


def test_an_edited_file_is_loaded_anew(folder: Path):
    path = folder / "policies" / "mine.py"
    path.write_text(FILE.format("First"))
    first = load_policy(path)
    path.write_text(FILE.format("Second"))
    assert load_policy(path).summary() == "Second."
    assert first.summary() == "First."


def test_a_file_that_failed_can_be_mended(folder: Path):
    path = folder / "policies" / "mine.py"
    path.write_text("raise KeyError('x')")
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"mine\.py:1: the policy cannot be loaded \(KeyError: 'x'\)"
        ):
            load_policy(path)
    path.write_text(FILE.format("Mended"))
    assert load_policy(path).summary() == "Mended."


def test_a_base_class_of_the_same_file_counts(folder: Path):
    path = folder / "policies" / "mine.py"
    path.write_text(FILE.format("First") + "class Other(Mine):\n    pass\n")
    with pytest.raises(UserError, match="defines 2 policies, expected exactly one"):
        load_policy(path)


# --- checks that can fail ---


def started(check: bool = True) -> Any:
    requests = forest(random.Random(5), 120, 10)
    policy = any_policy.AnyPolicy(alpha=1.0)
    run = policy._start(*kernel_case(requests, HUNDREDS, 64 * 300 + 192 * 40), check)
    run.advance(0, 60, {"alpha": 1.0, "value_kind": 0, "score_kind": 0})
    assert run.cache.totals[EVICTIONS] > 0
    return run


def go_on(run: Any, **values: float) -> None:
    run.advance(60, 120, {"alpha": 1.0, "value_kind": 0, "score_kind": 0} | values)


def test_nothing_is_wrong_to_begin_with():
    run = started()
    evictions = int(run.cache.totals[EVICTIONS])
    go_on(run)  # raises if a check fails
    assert run.cache.totals[EVICTIONS] > evictions


@pytest.mark.parametrize("total", [STATES, KV_TOKENS])
def test_check_finds_wrong_accounts(total: int):
    run = started()
    run.cache.totals[total] -= 1
    with pytest.raises(
        CheckError, match=r"at request 60 .* the bytes accounted are not the bytes held"
    ):
        go_on(run)


def test_check_finds_a_lost_child():
    run = started()
    run.cache.children[0] += 1
    with pytest.raises(CheckError, match="resident children are not those it counts"):
        go_on(run)


def test_check_finds_a_state_off_the_tree():
    run = started()
    node = next(i for i, flags in enumerate(run.cache.flags) if i and not flags & NODE)
    run.cache.flags[node] |= STATE | HAD_STATE
    with pytest.raises(CheckError):
        go_on(run)


def test_check_finds_a_time_that_the_order_does_not_have():
    run = started()
    node = next(i for i, slot in enumerate(run.cache.slot) if slot >= 0)
    run.cache.time[node] += 0.5
    with pytest.raises(CheckError, match="order of touches"):
        run.advance(60, 61, {"alpha": 1.0, "value_kind": 0, "score_kind": 0})


def test_check_finds_too_many_bytes():
    run = started()
    recount = np.empty((2, run.cache.prefix_index.parent.size), np.int32)
    small = run.cache.budget._replace(together=1)
    caches = (run.cache, run.cache._replace(budget=small))
    codes = [audit_radix(cache, *recount) for cache in caches]
    assert [COMPLAINTS[code] for code in codes] == ["", "the cache holds more than its capacity"]


class Greedy(BoundPolicy):
    """Claims to reuse more than there is."""

    reuses_everything = True


def test_check_of_a_bound_adds_up(monkeypatch: pytest.MonkeyPatch):
    case = kernel_case([Request(0, i, float(i), (1, 2, 3), ()) for i in range(3)], HUNDREDS, 1)
    assert Greedy().replay(*case, check=True).outcome.reused.tolist() == [0, 3, 3]

    def lie(
        index: Any, flags: Any, everything: bool, requests: Any, first: int, last: int, outcome: Any
    ) -> None:
        outcome.reused[:] = 4

    monkeypatch.setattr("marconi_sim.policy.bound.replay_bound", lie)
    with pytest.raises(
        CheckError, match=r"at request 0 .* reused <= matched <= input does not hold"
    ):
        Greedy().replay(*case, check=True)


def test_check_of_blocks_recounts_them(monkeypatch: pytest.MonkeyPatch):
    from marconi_sim.policy import block

    def lose_one(index: Any, cache: Any, *rest: Any) -> None:
        block_replay(index, cache, *rest)
        rest[-1].totals[STATES] += 1

    block_replay = block.replay_blocks
    case = kernel_case([Request(0, i, float(i), (1, 2, 3), ()) for i in range(3)], HUNDREDS, 10**6)
    load_policy("vllm+")(block_size=1).replay(*case, check=True)
    monkeypatch.setattr(block, "replay_blocks", lose_one)
    with pytest.raises(CheckError, match="the bytes accounted are not the bytes held"):
        load_policy("vllm+")(block_size=1).replay(*case, check=True)


# --- what a unit needs ---


def test_needed_bytes():
    shape = kernel_case([Request(0, 0, 0.0, (1,), ())], HUNDREDS, 1).shape
    assert (shape.kv_bytes, shape.state_bytes) == (64, 192)
    assert load_policy("marconi")().needed_bytes(shape, 10) == 832
    assert load_policy("vllm+")(block_size=4).needed_bytes(shape, 10) == 448
    for name in ("vanilla", "unbounded", "ceiling"):
        assert load_policy(name)().needed_bytes(shape, 10) == 0
