"""A radix-tree cache in the middle of a replay, as Python drives it: forwards, checked, or forked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numba.core.errors import NumbaError

from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import NONE
from marconi_sim.core.index.requests import Requests
from marconi_sim.core.outcome import EVICTIONS, KV_TOKENS, STATES, Outcome, new_outcome
from marconi_sim.core.params import make_params
from marconi_sim.core.radix.audit import COMPLAINTS, audit_radix, audit_request
from marconi_sim.core.radix.cache import (
    DISAGREED,
    NOT_A_NUMBER,
    PLANNED,
    UNLIMITED,
    RadixCache,
    copy_radix_cache,
)
from marconi_sim.core.radix.evict import Hooks, by_search, by_search_and_scan
from marconi_sim.core.radix.plan import Planner
from marconi_sim.core.radix.replay import (
    begin_request,
    finish_request,
    replay_radix,
    replay_unlimited,
)
from marconi_sim.policy.base import CheckError
from marconi_sim.policy.listener import Listener


def _cause(error: NumbaError) -> str:
    """Return what numba complains about, and where, in one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Failed in", "During", "- Resolution"))]
    place = next((line for line in lines if line.startswith("File ")), "")
    return f"{told[0] if told else lines[0]}{' ' + place.rstrip(':') if place else ''}"


def _held(cache: RadixCache) -> int:
    shape, totals = cache.shape, cache.totals
    return int(shape.kv_bytes * totals[KV_TOKENS] + shape.state_bytes * totals[STATES])


@dataclass
class RadixRun:
    """A cache in the middle of a replay; with a listener, which is told of each request.

    name, value, score: of the policy.
    planner: the steps for states that lie inside edges.
    check: whether every invariant is checked after every request.
    """

    name: str
    value: Callable[..., float]
    score: Callable[..., float]
    planner: Planner
    requests: Requests
    check: bool
    cache: RadixCache
    outcome: Outcome
    listener: Listener | None = None

    def advance(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool = False
    ) -> int:
        """Replay the requests [first, last) with these parameters; return the number of the next request."""
        if self.check:
            return self._advance_checked(first, last, values, until_eviction)
        return self._advance(first, last, values, until_eviction, by_search)

    def _tell(
        self, listener: Listener, first: int, last: int, until_eviction: bool, hooks: Hooks
    ) -> int:
        """Replay one request after the other, with the listener's part in between."""
        cache = self.cache
        for i in range(first, last):
            evicted = cache.totals[EVICTIONS]
            found = begin_request(cache, self.planner, self.requests, i, self.outcome)
            listener.looked_up(i, int(found.reused), self._checkpoints(i, int(found.branch)))
            finish_request(cache, self.planner, self.requests, i, found.branch, hooks)
            journal = cache.journal
            listener.inserted(i, journal.events[: journal.used[0]], _held(cache))
            if until_eviction and cache.totals[EVICTIONS] > evicted:
                return i + 1
        return last

    def _checkpoints(self, i: int, branch: int) -> tuple[int, ...]:
        """Return the nodes where request i wants states, deepest last."""
        rules = self.cache.rules
        wanted = (
            (rules.branch_point and branch != NONE, branch),
            (rules.input_end, int(self.requests.input_node[i])),
            (rules.sequence_end, int(self.requests.end_node[i])),
        )
        nodes = {node for is_wanted, node in wanted if is_wanted}
        nodes |= set(self.cache.plan[: self.cache.sizes[PLANNED]].tolist())
        return tuple(sorted(nodes, key=lambda node: int(self.cache.prefix_index.depth[node])))

    def _advance(
        self,
        first: int,
        last: int,
        values: dict[str, float],
        until_eviction: bool,
        find: Callable[..., tuple[int, float]],
    ) -> int:
        cache = self.cache
        hooks = Hooks(self.value, self.score, find, make_params(values))
        try:
            if self.listener is not None:
                done = self._tell(self.listener, first, last, until_eviction, hooks)
            elif cache.budget.together == UNLIMITED:
                replay_unlimited(cache, self.planner, self.requests, first, last, self.outcome)
                return last
            else:
                done = replay_radix(
                    cache,
                    self.planner,
                    self.requests,
                    first,
                    last,
                    until_eviction,
                    self.outcome,
                    hooks,
                )
        except NumbaError as error:
            raise UserError(
                f"policy '{self.name}': its value() or score() cannot be compiled ({_cause(error)});"
                " numba compiles both in nopython mode, and they allocate nothing"
            ) from error
        except ArithmeticError as error:
            raise UserError(
                f"policy '{self.name}': its value() or score() failed ({error}),"
                f" after request {first} in processing order; mend the policy"
            ) from error
        if cache.clock[NOT_A_NUMBER]:
            raise UserError(
                f"policy '{self.name}': its value() or score() returned a number that is not finite,"
                f" between requests {first} and {done} in processing order; mend the policy"
            )
        if cache.clock[DISAGREED]:
            raise CheckError(
                self.name,
                first,
                "the victim found is not the entry with the lowest score"
                " (is score() a weighted sum of recency and value?)",
            )
        return done

    def _advance_checked(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool
    ) -> int:
        cache = self.cache
        recount = np.empty((2, cache.prefix_index.parent.size), np.int32)
        for i in range(first, last):
            evicted = cache.totals[EVICTIONS]
            self._advance(i, i + 1, values, False, by_search_and_scan)
            length = int(cache.prefix_index.depth[self.requests.input_node[i]])
            matched, reused = int(self.outcome.matched[i]), int(self.outcome.reused[i])
            code = audit_request(length, matched, reused, self.outcome.missed[i])
            code = code or audit_radix(cache, *recount)
            if code:
                raise CheckError(self.name, i, COMPLAINTS[code])
            if until_eviction and cache.totals[EVICTIONS] > evicted:
                return i + 1
        return last

    def fork(self) -> RadixRun:
        """Return an independent run in the same state, which nobody listens to."""
        cache = copy_radix_cache(self.cache)
        outcome = new_outcome(self.requests.input_node.size)._replace(totals=cache.totals)
        return replace(self, cache=cache, outcome=outcome, listener=None)
