"""How vLLM lays a hybrid model's cache out: one pool of blocks of equal bytes for KV and states.

Read in vLLM 0.33.0 (platforms/interface.py, v1/core/kv_cache_planning.py); `block_tokens` gives the sizes that users of
vLLM quote (tests/test_exact_models.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from marconi_sim.model.exact import ExactModel

ALIGNMENT = 16  # tokens; backends may round up further, those of latent attention to 128 at least


class Groups(NamedTuple):
    """Groups of layers that share block tables.

    attention, recurrent: how many groups; caching a block's tokens takes one block per attention group, a state one
        per recurrent group.
    """

    attention: int
    recurrent: int


def block_tokens(model: ExactModel) -> int | None:
    """Return the tokens of a block: raised until one attention layer's KV holds one layer's state.

    Before the backend's own rounding. None without attention: there are no tokens to count in.
    """
    if not model.kv_bytes_of_layer:
        return None
    per_alignment = ALIGNMENT * model.kv_bytes_of_layer
    return ALIGNMENT * max(1, math.ceil(model.state_bytes_of_layer / per_alignment))


def groups(model: ExactModel) -> Groups:
    """Return the groups: each of as many layers as the rarer kind has, or the other if that is less than half more."""
    layers = model.layers()
    counts = [count for count in (layers["attention"], layers["ssm"]) if count]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    return Groups(math.ceil(layers["attention"] / size), math.ceil(layers["ssm"] / size))
