"""Replays under the rules of the published code, or of anything between it and the paper (docs/fidelity.md).

This is beside the policies, not part of them: `Policy.replay` follows the paper and is fast, this follows the switches
of `Departures` and is plain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marconi_sim.base.errors import UsageError, did_you_mean
from marconi_sim.core.departures import ARTIFACT, PAPER, Departures
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import Outcome, new_outcome
from marconi_sim.core.published.blocks import (
    BlockSetting,
    audit_artifact_blocks,
    new_artifact_blocks,
    replay_artifact_blocks,
)
from marconi_sim.core.published.radix import audit_artifact_radix, replay_artifact_radix
from marconi_sim.core.published.tree import (
    ROUNDS,
    ArtifactTree,
    Setting,
    copy_artifact_tree,
    new_artifact_tree,
)
from marconi_sim.core.radix.audit import COMPLAINTS, audit_request
from marconi_sim.model import Model, PaperModel
from marconi_sim.policy.base import CheckError, Policy, Replayed
from marconi_sim.policy.block import BlockPolicy
from marconi_sim.policy.radix import BOOTSTRAP, RadixPolicy

RULES = {"paper": PAPER, "artifact": ARTIFACT}
LAST = 500  # requests that departure D3 leaves in the tuner's window


def departures_of(rules: str | Departures) -> Departures:
    """Return the switches that a name means.

    Raises:
        UsageError: an unknown name.
    """
    if isinstance(rules, Departures):
        return rules
    if rules not in RULES:
        raise UsageError(f"rules '{rules}': unknown{did_you_mean(rules, RULES)}")
    return RULES[rules]


def name_of(departures: Departures) -> str:
    """Return `paper`, `artifact`, or the shorter of `paper with A, B` and `artifact without A, B`."""
    on = [name for name, value in departures._asdict().items() if value]
    off = [name for name, value in departures._asdict().items() if not value]
    if not on or not off:
        return "artifact" if on else "paper"
    return (
        f"paper with {', '.join(on)}"
        if len(on) <= len(off)
        else f"artifact without {', '.join(off)}"
    )


@dataclass
class _Run:
    """A radix-tree cache in the middle of a replay."""

    policy: RadixPolicy
    index: Index
    requests: Requests
    setting: Setting
    check: bool
    tree: ArtifactTree
    outcome: Outcome

    def advance(self, first: int, last: int, alpha: float, until_eviction: bool = False) -> int:
        """Replay the requests [first, last); return the number of the next request."""
        step = last - first if not self.check else 1
        done = first
        while done < last:
            before, rounds = done, self.tree.clock[ROUNDS]
            done = replay_artifact_radix(
                self.index, self.tree, self.setting, alpha, self.requests, done, done + step,
                until_eviction, self.outcome,
            )  # fmt: skip
            if self.check:
                code = audit_artifact_radix(self.index, self.tree)
                _check_request(self.policy, self.index, self.requests, self.outcome, before, code)
            if until_eviction and self.tree.clock[ROUNDS] > rounds:
                break
        return done

    def fork(self) -> _Run:
        """Return an independent run in the same state."""
        return self._with(copy_artifact_tree(self.tree))

    def restart(self) -> _Run:
        """Return an independent run with an empty cache."""
        return self._with(new_artifact_tree(self.index.parent.size, np.zeros(5, np.int64)))

    def _with(self, tree: ArtifactTree) -> _Run:
        outcome = new_outcome(self.requests.input_node.size)._replace(totals=tree.totals)
        return replace(self, tree=tree, outcome=outcome)


def _check_request(
    policy: Policy, index: Index, requests: Requests, outcome: Outcome, i: int, code: int
) -> None:
    """Raise if request i's tokens do not add up, or if `code` is a complaint about the cache."""
    length = int(index.depth[requests.input_node[i]])
    of_request = audit_request(
        length, int(outcome.matched[i]), int(outcome.reused[i]), outcome.missed[i]
    )
    if of_request or code:
        raise CheckError(policy.name, i, COMPLAINTS[of_request or code])


def _gain(run: _Run, first: int, last: int) -> float:
    """Return what the tuner maximises over the requests [first, last)."""
    departures = run.setting.departures
    if departures.tuner_last_500:  # D3
        first = max(first, last - LAST)
    reused = run.outcome.reused[first:last]
    if departures.tuner_counts_flops:  # D1
        shape, tokens = run.setting.shape, reused.astype(np.float64)
        return math.fsum(tokens * (shape.flops_linear + shape.flops_quadratic * tokens))
    return float(reused.sum(dtype=np.int64))


def _bootstrap(run: _Run) -> tuple[int, float, dict[str, Any]]:
    """Choose alpha on the start of the trace, as `RadixPolicy._bootstrap` does or as the published code does.

    Returns (number of the next request, alpha, findings).
    """
    departures = run.setting.departures
    grid = run.policy.bootstrap_grid["alpha"]
    total = run.requests.input_node.size
    reached = run.advance(0, total, grid[0], until_eviction=True)
    if not run.tree.clock[ROUNDS]:
        return reached, grid[0], {"tuned_alpha": None, "first_eviction_request": None}
    window_end = int(run.policy.params["multiplier"]) * reached
    # A look-up does not depend on alpha: to adopt one before a request's insertion is to adopt it before the request.
    adopted = window_end - departures.tuner_mid_request  # D5, D7
    if window_end > total or adopted < reached:
        return reached, grid[0], {"tuned_alpha": None, "first_eviction_request": reached}
    start, snapshot = reached, run.fork()
    if departures.tuner_from_empty:  # D4
        start, snapshot = 0, run.restart()
    gains = []
    for alpha in grid:
        trial = snapshot.fork()
        trial.advance(start, window_end, alpha)
        gains.append(_gain(trial, start, window_end))
    run.advance(reached, adopted, grid[0])
    chosen = grid[int(np.argmax(gains))]
    return adopted, chosen, {"tuned_alpha": chosen, "first_eviction_request": reached}


def _replay_radix(
    policy: RadixPolicy,
    index: Index,
    requests: Requests,
    model: PaperModel,
    capacity: int,
    departures: Departures,
    check: bool,
) -> Replayed:
    # B1: the code subtracts from mlp(node) not mlp(p) = 16 p D^2 per MLP layer but attention(p) = 8 p D^2 + 4 p^2 D.
    D, layers = model.model_dimension, model.mlp_layers
    setting = Setting(
        shape=model.shape,
        mlp_linear=layers * 8.0 * D**2,
        mlp_quadratic=layers * -4.0 * D,
        rules=policy.kernel_rules(),
        departures=departures,
        capacity=capacity,
    )
    outcome = new_outcome(requests.input_node.size)
    tree = new_artifact_tree(index.parent.size, outcome.totals)
    run = _Run(policy, index, requests, setting, check, tree, outcome)
    replay_artifact_radix(index, tree, setting, 0.0, requests, 0, 0, False, outcome)  # compiles
    started = time.perf_counter()
    alpha = policy.params.get("alpha", 0.0)
    done = 0
    findings: dict[str, Any] = {}
    if alpha == BOOTSTRAP:
        done, alpha, findings = _bootstrap(run)
    run.advance(done, requests.input_node.size, float(alpha))
    return Replayed(outcome, findings, time.perf_counter() - started)


def _replay_blocks(
    policy: BlockPolicy,
    index: Index,
    requests: Requests,
    model: Model,
    capacity: int,
    departures: Departures,
    check: bool,
) -> Replayed:
    total = requests.input_node.size
    outcome = new_outcome(total)
    cache = new_artifact_blocks(index.parent.size)
    setting = BlockSetting(model.shape, int(policy.params["block_size"]), departures, capacity)
    replay_artifact_blocks(index, cache, setting, requests, 0, 0, outcome)  # compiles
    started = time.perf_counter()
    if not check:
        replay_artifact_blocks(index, cache, setting, requests, 0, total, outcome)
    for i in range(total if check else 0):
        replay_artifact_blocks(index, cache, setting, requests, i, i + 1, outcome)
        code = audit_artifact_blocks(index, cache, setting.block, outcome)
        _check_request(policy, index, requests, outcome, i, code)
    return Replayed(outcome, {}, time.perf_counter() - started)


def check_departing(policy: Policy, model: Model) -> None:
    """Raise unless the published code has this policy, with these parameters, and the model's accounting.

    Raises:
        UsageError: it has not.
    """
    if not policy.published or not isinstance(policy, RadixPolicy | BlockPolicy):
        raise UsageError(
            f"policy '{policy.name}': the published code has no such policy;"
            " the rules of the artifact apply to sglang+, marconi and vllm+ only"
        )
    if not isinstance(model, PaperModel):
        raise UsageError(
            f"model '{model.name}': its accounting is '{model.accounting}', and the published code counts FLOPs by the"
            " paper's formulas only; give a model of the accounting 'paper', e.g. hybrid-7b, or use the rules 'paper'"
        )
    if policy.params.get("clock", "logical") != "logical":
        raise UsageError(
            f"parameter clock={policy.params['clock']}: the published code's rules have a logical clock only;"
            " leave the parameter out, or use the rules 'paper'"
        )


def replay_departing(
    policy: Policy,
    index: Index,
    requests: Requests,
    model: Model,
    capacity: int,
    departures: Departures,
    *,
    check: bool = False,
) -> Replayed:
    """Replay requests in processing order under given departures from the paper.

    Args:
        policy: one that the published code has (`Policy.published`).
        index: the prefix index.
        requests: nodes; their times are not used.
        model: its costs, of the accounting `paper`.
        capacity: bytes.
        departures: the switches.
        check: check every invariant but the capacity, which several departures break, after every request.

    Raises:
        UsageError: as `check_departing`.
        CheckError: an invariant does not hold.
    """
    check_departing(policy, model)
    replay: Callable[..., Replayed] = (
        _replay_radix if isinstance(policy, RadixPolicy) else _replay_blocks
    )
    return replay(policy, index, requests, model, capacity, departures, check)
