"""A radix-tree cache in the middle of a replay, as Python drives it: forwards, checked, or forked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numba.core.errors import NumbaError

from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import NONE
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import EVICTIONS, KV_TOKENS, STATES, Outcome, new_outcome
from marconi_sim.core.params import make_params
from marconi_sim.core.radix.audit import COMPLAINTS, audit_radix, audit_request
from marconi_sim.core.radix.cache import NOT_A_NUMBER, RadixCache, Rules, copy_radix_cache
from marconi_sim.core.radix.evict import Hooks
from marconi_sim.core.radix.replay import (
    UNLIMITED,
    begin_request,
    finish_request,
    replay_radix,
    replay_unlimited,
)
from marconi_sim.core.shape import Shape
from marconi_sim.policy.base import CheckError
from marconi_sim.policy.listener import Listener

if TYPE_CHECKING:
    from marconi_sim.policy.radix import RadixPolicy


def _cause(error: NumbaError) -> str:
    """Return what numba complains about, and where, in one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Failed in", "During", "- Resolution"))]
    place = next((line for line in lines if line.startswith("File ")), "")
    return f"{told[0] if told else lines[0]}{' ' + place.rstrip(':') if place else ''}"


@dataclass
class RadixRun:
    """A cache in the middle of a replay; with a listener, which is told of each request."""

    policy: RadixPolicy
    index: Index
    requests: Requests
    shape: Shape
    capacity: int
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
        return self._advance(first, last, values, until_eviction, False)

    def _tell(
        self,
        listener: Listener,
        first: int,
        last: int,
        values: dict[str, float],
        until_eviction: bool,
        verify: bool,
    ) -> tuple[int, bool]:
        """Replay one request after the other, with the listener's part in between; return what `replay_radix` does."""
        rules, totals = self.policy.kernel_rules(), self.cache.totals
        params, hooks = make_params(values), Hooks(self.policy.value, self.policy.score)
        agreed = True
        for i in range(first, last):
            evicted = totals[EVICTIONS]
            _, reused, branch = begin_request(
                self.index, self.cache, rules, self.requests, i, self.outcome
            )
            listener.looked_up(i, int(reused), self._checkpoints(rules, i, int(branch)))
            agreed &= finish_request(
                self.index, self.cache, self.shape, rules, self.capacity, self.requests, i, branch,
                verify, params, hooks,
            )  # fmt: skip
            held = self.shape.kv_bytes * totals[KV_TOKENS] + self.shape.state_bytes * totals[STATES]
            journal = self.cache.journal
            listener.inserted(i, journal.events[: journal.used[0]], int(held))
            if until_eviction and totals[EVICTIONS] > evicted:
                return i + 1, agreed
        return last, agreed

    def _checkpoints(self, rules: Rules, i: int, branch: int) -> tuple[int, ...]:
        """Return the nodes where request i wants states, deepest last."""
        wanted = (
            (rules.branch_point and branch != NONE, branch),
            (rules.input_end, int(self.requests.input_node[i])),
            (rules.sequence_end, int(self.requests.end_node[i])),
        )
        nodes = {node for is_wanted, node in wanted if is_wanted}
        return tuple(sorted(nodes, key=lambda node: int(self.index.depth[node])))

    def _advance(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool, verify: bool
    ) -> int:
        rules = self.policy.kernel_rules()
        if self.capacity == UNLIMITED and self.listener is None:
            replay_unlimited(
                self.index, self.cache, self.shape, rules, self.requests, first, last, self.outcome
            )
            return last
        try:
            if self.listener is not None:
                done, agreed = self._tell(
                    self.listener, first, last, values, until_eviction, verify
                )
            else:
                done, agreed = replay_radix(
                    self.index, self.cache, self.shape, rules, self.capacity, self.requests,
                    first, last, until_eviction, verify, self.outcome, make_params(values),
                    Hooks(self.policy.value, self.policy.score),
                )  # fmt: skip
        except NumbaError as error:
            raise UserError(
                f"policy '{self.policy.name}': its value() or score() cannot be compiled ({_cause(error)});"
                " numba compiles both in nopython mode, and they allocate nothing"
            ) from error
        except ArithmeticError as error:
            raise UserError(
                f"policy '{self.policy.name}': its value() or score() failed ({error}),"
                f" after request {first} in processing order; mend the policy"
            ) from error
        if self.cache.clock[NOT_A_NUMBER]:
            raise UserError(
                f"policy '{self.policy.name}': its value() or score() returned a number that is not finite,"
                f" between requests {first} and {done} in processing order; mend the policy"
            )
        if not agreed:
            raise CheckError(
                self.policy.name,
                first,
                "the victim found is not the entry with the lowest score"
                " (is score() a weighted sum of recency and value?)",
            )
        return done

    def _advance_checked(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool
    ) -> int:
        rules = self.policy.kernel_rules()
        recount = np.empty((2, self.index.parent.size), np.int32)
        for i in range(first, last):
            evicted = self.cache.totals[EVICTIONS]
            self._advance(i, i + 1, values, False, True)
            length = int(self.index.depth[self.requests.input_node[i]])
            matched, reused = int(self.outcome.matched[i]), int(self.outcome.reused[i])
            code = audit_request(length, matched, reused, self.outcome.missed[i]) or audit_radix(
                self.index, self.cache, self.shape, rules, self.capacity, *recount
            )
            if code:
                raise CheckError(self.policy.name, i, COMPLAINTS[code])
            if until_eviction and self.cache.totals[EVICTIONS] > evicted:
                return i + 1
        return last

    def fork(self) -> RadixRun:
        """Return an independent run in the same state, which nobody listens to."""
        cache = copy_radix_cache(self.cache)
        outcome = new_outcome(self.requests.input_node.size)._replace(totals=cache.totals)
        return replace(self, cache=cache, outcome=outcome, listener=None)
