"""What the configurations of the families with linear attention or short convolutions mean, after transformers 5.24."""

from __future__ import annotations

from marconi_sim.model.config import FULL, LINEAR, Config
from marconi_sim.model.family_parts import Parts, attention, latent_attention, mlp
from marconi_sim.model.layers import MLP, MoE
from marconi_sim.model.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    ShortConv,
)


def _delta_net(config: Config, layers: int) -> GatedDeltaNet:
    return GatedDeltaNet(
        layers=layers,
        key_heads=config.number("linear_num_key_heads"),
        key_dim=config.number("linear_key_head_dim"),
        value_heads=config.number("linear_num_value_heads"),
        value_dim=config.number("linear_value_head_dim"),
        kernel=config.number("linear_conv_kernel_dim"),
    )


def _interval_types(config: Config) -> list[str]:
    """Return the kinds of layers: listed, or every n-th full attention."""
    if config.get("layer_types") is not None or config.get("full_attention_interval") is None:
        return config.layer_types("layer_types", "full_attention_interval")
    every = config.number("full_attention_interval")
    layers = config.number("num_hidden_layers")
    return [LINEAR if (i + 1) % every else FULL for i in range(layers)]


def qwen(config: Config) -> Parts:
    """Return the layers of Qwen3-Next and Qwen3.5."""
    types = _interval_types(config)
    parts: Parts = [
        attention(config, types.count(FULL), gate=True),
        _delta_net(config, types.count(LINEAR)),
    ]
    dense = len(types)
    has_experts = config.family not in ("qwen3_5", "qwen3_5_text")
    if has_experts and config.number("num_experts", low=0):
        step = config.number("decoder_sparse_step", default=1)
        only = config.indices("mlp_only_layers", len(types)) or ()
        dense = sum(i in only or (i + 1) % step > 0 for i in range(len(types)))
        parts.append(
            MoE(
                layers=len(types) - dense,
                experts=config.number("num_experts"),
                active_experts=config.number("num_experts_per_tok"),
                size=config.number("moe_intermediate_size"),
                shared_size=config.number("shared_expert_intermediate_size", low=0),
                shared_gate=True,
            )
        )
    if dense:
        parts.append(mlp(config, dense))
    return parts


def olmo_hybrid(config: Config) -> Parts:
    """Return the layers of Olmo Hybrid."""
    types = config.layer_types("layer_types")
    return [
        attention(config, types.count(FULL)),
        _delta_net(config, types.count(LINEAR)),
        mlp(config, len(types)),
    ]


def _sparse(config: Config, layers: int, dense: int) -> Parts:
    """Return the feed-forward layers of Kimi Linear and Ling: some dense ones, then experts and shared ones."""
    size = config.number("moe_intermediate_size")
    shared = config.number("n_shared_experts", "num_shared_experts", low=0)
    moe = MoE(
        layers=layers - dense,
        experts=config.number("num_local_experts", "num_experts"),
        active_experts=config.number("num_experts_per_tok", "num_experts_per_token"),
        size=size,
        shared_size=shared * size,
    )
    return [moe, mlp(config, dense)] if dense else [moe]


def _dense(config: Config) -> int:
    if config.get("mlp_layer_types") is not None:
        return config.layer_types("mlp_layer_types", allowed=("dense", "sparse")).count("dense")
    return int(config.number("first_k_dense_replace", low=0))


_OLD_KIMI = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}


def kimi_linear(config: Config) -> Parts:
    """Return the layers of Kimi Linear, from the published form of its configuration or from that of transformers."""
    layers = config.number("num_hidden_layers")
    nested = config.mapping("linear_attn_config")
    config = config.with_values({_OLD_KIMI.get(key, key): value for key, value in nested.items()})
    listed = config.indices("full_attn_layers", layers, first=1)
    full = config.layer_types("layer_types").count(FULL) if listed is None else len(listed)
    dim = config.number("linear_head_dim")
    return [
        latent_attention(config, full),
        KimiDeltaAttention(
            layers=layers - full,
            heads=config.number("linear_num_heads"),
            head_dim=dim,
            kernel=config.number("linear_conv_kernel_dim"),
            gate_rank=dim,
        ),
        *_sparse(config, layers, _dense(config)),
    ]


def bailing_hybrid(config: Config) -> Parts:
    """Return the layers of Ling 3.0."""
    layers = config.number("num_hidden_layers")
    if config.get("layer_types") is not None:
        full = config.layer_types("layer_types").count(FULL)
    else:
        full = layers // config.number("layer_group_size")
    return [
        latent_attention(config, full, gate=True),
        KimiDeltaAttention(
            layers=layers - full,
            heads=config.number("linear_num_heads", "num_attention_heads"),
            head_dim=config.number("linear_head_dim", "head_dim"),
            kernel=config.number("short_conv_kernel_size"),
        ),
        *_sparse(config, layers, _dense(config)),
    ]


def _lfm2_mixers(config: Config) -> tuple[list[str], Parts]:
    if config.get("layer_types") is None and config.get("full_attn_idxs") is not None:
        layers = config.number("num_hidden_layers")
        full = config.indices("full_attn_idxs", layers) or ()
        types = [FULL if i in full else LINEAR for i in range(layers)]
    else:
        types = config.layer_types("layer_types", "full_attn_idxs")
    conv = ShortConv(
        layers=types.count(LINEAR),
        width=config.number("hidden_size"),
        kernel=config.number("conv_L_cache"),
    )
    return types, [attention(config, types.count(FULL)), conv]


def lfm2(config: Config) -> Parts:
    """Return the layers of LFM2."""
    types, parts = _lfm2_mixers(config)
    size = config.number("block_ff_dim", "intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", True):
        multiple = config.number("block_multiple_of")
        size = int(config.ratio("block_ffn_dim_multiplier", 1.0) * int(2 * size / 3))
        size = config.derived(
            "intermediate_size",
            multiple * -(-size // multiple),
            "2/3 of it x block_ffn_dim_multiplier, in multiples of block_multiple_of",
        )
    return [*parts, MLP(layers=len(types), size=size)]


def lfm2_moe(config: Config) -> Parts:
    """Return the layers of LFM2 with experts."""
    types, parts = _lfm2_mixers(config)
    dense = config.number("num_dense_layers", low=0)
    moe = MoE(
        layers=len(types) - dense,
        experts=config.number("num_experts"),
        active_experts=config.number("num_experts_per_tok"),
        size=config.number("moe_intermediate_size"),
    )
    return [*parts, moe, *([mlp(config, dense)] if dense else [])]


def minimax(config: Config) -> Parts:
    """Return the layers of MiniMax-Text-01."""
    types = config.layer_types("layer_types")
    full = attention(config, types.count(FULL))
    lightning = LightningAttention(
        layers=types.count(LINEAR), heads=full.query_heads, head_dim=full.head_dim
    )
    moe = MoE(
        layers=len(types),
        experts=config.number("num_local_experts", "num_experts"),
        active_experts=config.number("num_experts_per_tok"),
        size=config.number("intermediate_size"),
    )
    return [full, lightning, moe]
