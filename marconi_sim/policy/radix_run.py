"""A radix-tree cache in the middle of a replay, as Python drives it: forwards, checked, or forked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numba.core.errors import NumbaError

from marconi_sim.core.audit import COMPLAINTS, audit_radix, audit_request
from marconi_sim.core.evict import Hooks
from marconi_sim.core.outcome import EVICTIONS, Outcome, new_outcome
from marconi_sim.core.params import make_params
from marconi_sim.core.radix import NOT_A_NUMBER, RadixCache, copy_radix_cache
from marconi_sim.core.replay_radix import UNLIMITED, replay_radix, replay_unlimited
from marconi_sim.core.requests import Index, Requests
from marconi_sim.core.shape import Shape
from marconi_sim.errors import UserError
from marconi_sim.policy.base import CheckError

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
    """A cache in the middle of a replay."""

    policy: RadixPolicy
    index: Index
    requests: Requests
    shape: Shape
    capacity: int
    check: bool
    cache: RadixCache
    outcome: Outcome

    def advance(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool = False
    ) -> int:
        """Replay the requests [first, last) with these parameters; return the number of the next request."""
        if self.check:
            return self._advance_checked(first, last, values, until_eviction)
        return self._advance(first, last, values, until_eviction, False)

    def _advance(
        self, first: int, last: int, values: dict[str, float], until_eviction: bool, verify: bool
    ) -> int:
        rules = self.policy.kernel_rules()
        if self.capacity == UNLIMITED:
            replay_unlimited(
                self.index, self.cache, self.shape, rules, self.requests, first, last, self.outcome
            )
            return last
        try:
            done, agreed = replay_radix(
                self.index, self.cache, self.shape, rules, self.capacity, self.requests, first, last,
                until_eviction, verify, self.outcome, make_params(values),
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
        """Return an independent run in the same state."""
        cache = copy_radix_cache(self.cache)
        outcome = new_outcome(self.requests.input_node.size)._replace(totals=cache.totals)
        return replace(self, cache=cache, outcome=outcome)
