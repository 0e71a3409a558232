"""Layers that several families of configurations have, under the same keys."""

from __future__ import annotations

from marconi_sim.model.config import REQUIRED, Config
from marconi_sim.model.layers import MLP, Attention, LatentAttention, Layers

Parts = list[Layers]

# What transformers' class takes where a configuration lacks the key. Others have a number there, that of one published
# model; no file means that, so the key is required.
_KV_HEADS_OF_QUERY = ("granitemoehybrid", "llama", "olmo_hybrid")  # as many as query heads
_OWN_HEAD_DIM = (  # all but these: the hidden size by the query heads
    "nemotron_h",
    "qwen3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_next",
)


def attention(config: Config, layers: int, *, gate: bool = False) -> Attention:
    """Return attention with grouped KV heads, with an output gate or without.

    Raises:
        UserError: no key for the KV heads or their dimension, in a family where transformers does not derive it.
    """
    heads = config.number("num_attention_heads")
    same = heads if config.family in _KV_HEADS_OF_QUERY else REQUIRED
    kv_heads = config.number("num_key_value_heads", default=same)
    own = config.family in _OWN_HEAD_DIM
    head_dim = config.number("head_dim", default=REQUIRED if own else None)
    if head_dim is None:
        head_dim = config.derived(
            "head_dim",
            config.number("hidden_size") // heads,
            "hidden_size / num_attention_heads, rounded down",
        )
    return Attention(
        layers=layers, query_heads=heads, kv_heads=kv_heads, head_dim=head_dim, output_gate=gate
    )


def mlp(config: Config, layers: int) -> MLP:
    """Return gated feed-forward layers."""
    return MLP(layers=layers, size=config.number("intermediate_size"))


def latent_attention(config: Config, layers: int, *, gate: bool = False) -> LatentAttention:
    """Return multi-head latent attention, with an output gate or without."""
    return LatentAttention(
        layers=layers,
        heads=config.number("num_attention_heads"),
        kv_rank=config.number("kv_lora_rank"),
        rope_dim=config.number("qk_rope_head_dim"),
        nope_dim=config.number("qk_nope_head_dim"),
        value_dim=config.number("v_head_dim"),
        query_rank=config.number("q_lora_rank", default=None),
        output_gate=gate,
    )
