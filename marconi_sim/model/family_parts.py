"""Layers that several families of configurations have, under the same keys."""

from __future__ import annotations

from marconi_sim.model.config import Config
from marconi_sim.model.layers import MLP, Attention, LatentAttention, Layers

Parts = list[Layers]


def attention(config: Config, layers: int, *, gate: bool = False) -> Attention:
    """Return attention with grouped KV heads, with an output gate or without."""
    heads = config.number("num_attention_heads")
    hidden = config.number("hidden_size")
    return Attention(
        layers=layers,
        query_heads=heads,
        kv_heads=config.number("num_key_value_heads", default=heads),
        head_dim=config.number("head_dim", default=hidden // heads),
        output_gate=gate,
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
