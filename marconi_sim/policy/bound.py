"""The family of bounds: what no policy can fall below or exceed."""

from __future__ import annotations

import time
from typing import ClassVar

import numpy as np

from marconi_sim.base.errors import UsageError
from marconi_sim.core.bounds import replay_bound
from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.index.seen import SEEN
from marconi_sim.core.outcome import new_outcome
from marconi_sim.core.radix.audit import COMPLAINTS, audit_request
from marconi_sim.core.shape import Shape
from marconi_sim.policy.base import CheckError, Policy, Replayed
from marconi_sim.policy.listener import Listener


class BoundPolicy(Policy):
    """Base of the bounds.

    Class attributes:
        reuses_everything: every token seen before is reused (true), or none is (false).
    """

    reuses_everything: ClassVar[bool] = False

    @classmethod
    def rules(cls) -> dict[str, str]:
        return {
            "family": "bound: no cache is simulated",
            "reuses": "every token seen before" if cls.reuses_everything else "nothing",
            "capacity": "has no influence",
        }

    def needed_bytes(self, shape: Shape, tokens: int) -> int:
        return 0

    def replay(
        self,
        index: Index,
        requests: Requests,
        shape: Shape,
        capacity: int,
        *,
        check: bool = False,
        listener: Listener | None = None,
    ) -> Replayed:
        if listener is not None and self.reuses_everything:
            raise UsageError(
                f"policy '{self.name}': a bound that no cache reaches cannot be followed request by request;"
                " allowed: radix-tree policies and vanilla"
            )
        total = requests.input_node.size
        outcome = new_outcome(total)
        flags = np.zeros(index.parent.size, np.uint8)
        flags[0] = SEEN
        replay_bound(index, flags, self.reuses_everything, requests, 0, 0, outcome)  # compiles
        started = time.perf_counter()
        replay_bound(index, flags, self.reuses_everything, requests, 0, total, outcome)
        for i in range(total if check else 0):
            length = int(index.depth[requests.input_node[i]])
            code = audit_request(
                length, int(outcome.matched[i]), int(outcome.reused[i]), outcome.missed[i]
            )
            if code:
                raise CheckError(self.name, i, COMPLAINTS[code])
        if listener is not None:
            listener.started(index)
            for i in range(total):
                listener.looked_up(i, ROOT, ())
                listener.inserted(i, np.empty((0, 3), np.int32), 0)
        return Replayed(outcome, {}, time.perf_counter() - started)
