"""vLLM with a recurrent state per block: the paper's weaker baseline (section 5.1)."""

from marconi_sim.policy import BlockPolicy


class VLLMPlus(BlockPolicy):
    """Caches KV and a state for every full block; evicts the least recently used block."""

    published = True
