"""The family of block policies: KV and a state for every full block of a sequence, least recently used first out."""

from __future__ import annotations

import time

from marconi_sim.base.errors import UsageError
from marconi_sim.core.blocks.replay import audit_blocks, new_block_cache, replay_blocks
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import new_outcome
from marconi_sim.core.radix.audit import COMPLAINTS, audit_request
from marconi_sim.core.shape import Shape
from marconi_sim.policy.base import CheckError, Policy, Replayed
from marconi_sim.policy.listener import Listener
from marconi_sim.policy.parameter import Parameter


class BlockPolicy(Policy):
    """Base of the block policies (DESIGN section 5, `vllm+`)."""

    unit = "block"
    block_size = Parameter(
        32, "tokens per block; every full block has its KV and a state", unit="tokens",
        low=1, high=2**20, integer=True,
    )  # fmt: skip

    @classmethod
    def rules(cls) -> dict[str, str]:
        return {
            "family": "blocks of a fixed number of tokens",
            "checkpoints a state at": "the end of every full block",
            "may evict": "the least recently used block, of equally old ones the deepest",
            "a touch refreshes": "look-up: the blocks reused; insertion: all blocks of the sequence",
            "capacity": "as given",
        }

    def needed_bytes(self, shape: Shape, tokens: int) -> int:
        return shape.kv_bytes * int(self.params["block_size"]) + shape.state_bytes

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
        if listener is not None:
            raise UsageError(
                f"policy '{self.name}': a cache of blocks cannot be followed request by request;"
                " allowed: radix-tree policies and vanilla"
            )
        total = requests.input_node.size
        block = int(self.params["block_size"])
        outcome = new_outcome(total)
        cache = new_block_cache(index.parent.size)

        def advance(first: int, last: int) -> None:
            replay_blocks(index, cache, shape, block, capacity, requests, first, last, outcome)

        advance(0, 0)  # compiles
        started = time.perf_counter()
        if not check:
            advance(0, total)
        for i in range(total if check else 0):
            advance(i, i + 1)
            length = int(index.depth[requests.input_node[i]])
            code = audit_request(
                length, int(outcome.matched[i]), int(outcome.reused[i]), outcome.missed[i]
            ) or audit_blocks(index, cache, shape, block, capacity, outcome)
            if code:
                raise CheckError(self.name, i, COMPLAINTS[code])
        return Replayed(outcome, {}, time.perf_counter() - started)
