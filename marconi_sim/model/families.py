"""What the configurations of each family of models mean, after the code of transformers 5.24.

Each function takes a configuration and returns the model's layers.
"""

from __future__ import annotations

from collections.abc import Callable

from marconi_sim.model.config import FULL, LINEAR, Config
from marconi_sim.model.layers import MLP, Attention, LatentAttention, Layers, MoE
from marconi_sim.model.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    ShortConv,
)

Parts = list[Layers]


def _attention(config: Config, layers: int, *, gate: bool = False) -> Attention:
    heads = config.number("num_attention_heads")
    hidden = config.number("hidden_size")
    return Attention(
        layers=layers,
        query_heads=heads,
        kv_heads=config.number("num_key_value_heads", default=heads),
        head_dim=config.number("head_dim", default=hidden // heads),
        output_gate=gate,
    )


def _mlp(config: Config, layers: int) -> MLP:
    return MLP(layers=layers, size=config.number("intermediate_size"))


def _latent_attention(config: Config, layers: int) -> LatentAttention:
    return LatentAttention(
        layers=layers,
        heads=config.number("num_attention_heads"),
        kv_rank=config.number("kv_lora_rank"),
        rope_dim=config.number("qk_rope_head_dim"),
        nope_dim=config.number("qk_nope_head_dim"),
        value_dim=config.number("v_head_dim"),
        query_rank=config.number("q_lora_rank", default=None),
    )


def _mamba2(config: Config, layers: int, inner: int) -> Mamba2:
    heads = config.number("mamba_n_heads")
    size = config.get("mamba_d_head")
    return Mamba2(
        layers=layers,
        heads=heads,
        head_dim=inner // heads if size in (None, "auto") else config.number("mamba_d_head"),
        state_dim=config.number("mamba_d_state"),
        groups=config.number("mamba_n_groups"),
        kernel=config.number("mamba_d_conv"),
    )


def _expanded(config: Config) -> int:
    return int(config.number("mamba_expand") * config.number("hidden_size"))


def _transformer(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    return [_attention(config, layers), _mlp(config, layers)]


def _bamba(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    full = len(config.get("attn_layer_indices") or ())
    return [
        _attention(config, full),
        _mamba2(config, layers - full, _expanded(config)),
        _mlp(config, layers),
    ]


def _falcon_h1(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    inner = config.number("mamba_d_ssm", default=None) or _expanded(config)
    return [_attention(config, layers), _mamba2(config, layers, inner), _mlp(config, layers)]


def _granite(config: Config) -> Parts:
    types = config.layer_types("layer_types", "layers_block_type")
    shared = config.number("shared_intermediate_size")
    experts = config.number("num_local_experts", low=0)
    feed: Layers = MLP(layers=len(types), size=shared)
    if experts:
        feed = MoE(
            layers=len(types),
            experts=experts,
            active_experts=config.number("num_experts_per_tok"),
            size=config.number("intermediate_size"),
            shared_size=shared,
        )
    mamba = _mamba2(config, types.count(LINEAR), _expanded(config))
    return [_attention(config, types.count(FULL)), mamba, feed]


_NEMOTRON_LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}


def _nemotron_h(config: Config) -> Parts:
    allowed = tuple(_NEMOTRON_LETTERS.values())
    pattern = config.get("hybrid_override_pattern")
    if config.get("layers_block_type", "layer_types") is not None or pattern is None:
        types = config.layer_types("layers_block_type", "layer_types", allowed=allowed)
    else:
        if unknown := set(pattern) - set(_NEMOTRON_LETTERS):
            raise config.problem(
                f"hybrid_override_pattern: unknown letter '{min(unknown)}', allowed: {' '.join(_NEMOTRON_LETTERS)}"
            )
        types = [_NEMOTRON_LETTERS[letter] for letter in pattern]
    parts: Parts = [
        _attention(config, types.count(FULL)),
        Mamba2(
            layers=types.count(LINEAR),
            heads=config.number("mamba_num_heads"),
            head_dim=config.number("mamba_head_dim"),
            state_dim=config.number("ssm_state_size"),
            groups=config.number("n_groups", "mamba_n_groups"),
            kernel=config.number("conv_kernel", "mamba_d_conv"),
        ),
    ]
    if "mlp" in types:
        size = config.number("intermediate_size")
        parts.append(MLP(layers=types.count("mlp"), size=size, gated=False))
    if "moe" in types:
        parts.append(
            MoE(
                layers=types.count("moe"),
                experts=config.number("n_routed_experts", "num_local_experts"),
                active_experts=config.number("num_experts_per_tok"),
                size=config.number("moe_intermediate_size"),
                shared_size=config.number("moe_shared_expert_intermediate_size", low=0),
                latent_size=config.number("moe_latent_size", default=None),
                gated=False,
            )
        )
    return parts


def _zamba2(config: Config) -> Parts:
    hidden = config.number("hidden_size")
    if config.get("layers_block_type", "layer_types") is not None:
        types = config.layer_types("layers_block_type", "layer_types", allowed=(LINEAR, "hybrid"))
        layers, hybrid = len(types), types.count("hybrid")
    else:
        layers = config.number("num_hidden_layers")
        hybrid = len(config.get("hybrid_layer_ids") or ())
        if not hybrid:
            raise config.problem("no key 'layers_block_type' or 'hybrid_layer_ids'")
    heads = config.number("num_attention_heads")
    state_heads = config.number("n_mamba_heads")
    if config.get("use_shared_attention_adapter"):
        config.notes.append("The adapters of the shared attention are left out of the FLOPs.")
    return [
        Attention(
            layers=hybrid,
            query_heads=heads,
            kv_heads=config.number("num_key_value_heads", default=heads),
            head_dim=config.number("attention_head_dim", default=2 * hidden // heads),
            input_size=2 * hidden,
        ),
        Mamba2(
            layers=layers,
            heads=state_heads,
            head_dim=config.number("mamba_headdim", default=_expanded(config) // state_heads),
            state_dim=config.number("mamba_d_state"),
            groups=config.number("mamba_ngroups"),
            kernel=config.number("mamba_d_conv"),
        ),
        MLP(
            layers=hybrid,
            size=config.number("intermediate_size", default=4 * hidden),
            adapter_rank=config.number("adapter_rank"),
            projected=True,
        ),
    ]


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


def _qwen(config: Config) -> Parts:
    types = _interval_types(config)
    parts: Parts = [
        _attention(config, types.count(FULL), gate=True),
        _delta_net(config, types.count(LINEAR)),
    ]
    dense = len(types)
    if config.number("num_experts", default=0, low=0):
        step = config.number("decoder_sparse_step", default=1)
        only = config.get("mlp_only_layers") or ()
        dense = sum(i in only or (i + 1) % step > 0 for i in range(len(types)))
        parts.append(
            MoE(
                layers=len(types) - dense,
                experts=config.number("num_experts"),
                active_experts=config.number("num_experts_per_tok"),
                size=config.number("moe_intermediate_size"),
                shared_size=config.number("shared_expert_intermediate_size", low=0),
            )
        )
    if dense:
        parts.append(_mlp(config, dense))
    return parts


def _olmo_hybrid(config: Config) -> Parts:
    types = config.layer_types("layer_types")
    return [
        _attention(config, types.count(FULL)),
        _delta_net(config, types.count(LINEAR)),
        _mlp(config, len(types)),
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
    return [moe, _mlp(config, dense)] if dense else [moe]


def _dense(config: Config) -> int:
    types = config.get("mlp_layer_types")
    if types is not None:
        return list(types).count("dense")
    return int(config.number("first_k_dense_replace", low=0))


def _kimi_linear(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    old = config.get("linear_attn_config") or {}
    if "full_attn_layers" in old:
        full = len(old["full_attn_layers"])
    else:
        full = config.layer_types("layer_types").count(FULL)
    linear = Config(
        {
            **config.values,
            **{
                f"linear_{new}": old[key]
                for key, new in (
                    ("head_dim", "head_dim"),
                    ("num_heads", "num_heads"),
                    ("short_conv_kernel_size", "conv_kernel_dim"),
                )
                if key in old
            },
        },
        config.place,
        config.family,
    )
    dim = linear.number("linear_head_dim")
    return [
        _latent_attention(config, full),
        KimiDeltaAttention(
            layers=layers - full,
            heads=linear.number("linear_num_heads"),
            head_dim=dim,
            kernel=linear.number("linear_conv_kernel_dim"),
            gate_rank=dim,
        ),
        *_sparse(config, layers, _dense(config)),
    ]


def _bailing_hybrid(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    if config.get("layer_types") is not None:
        full = config.layer_types("layer_types").count(FULL)
    else:
        full = layers // config.number("layer_group_size")
    return [
        _latent_attention(config, full),
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
        full = config.get("full_attn_idxs")
        layers = config.number("num_hidden_layers")
        types = [FULL if i in full else LINEAR for i in range(layers)]
    else:
        types = config.layer_types("layer_types", "full_attn_idxs")
    conv = ShortConv(
        layers=types.count(LINEAR),
        width=config.number("hidden_size"),
        kernel=config.number("conv_L_cache"),
    )
    return types, [_attention(config, types.count(FULL)), conv]


def _lfm2(config: Config) -> Parts:
    types, parts = _lfm2_mixers(config)
    size = config.number("block_ff_dim", "intermediate_size")
    if config.values.get("block_auto_adjust_ff_dim", True):
        multiple = config.number("block_multiple_of")
        size = int((config.get("block_ffn_dim_multiplier") or 1) * int(2 * size / 3))
        size = multiple * -(-size // multiple)
    return [*parts, MLP(layers=len(types), size=size)]


def _lfm2_moe(config: Config) -> Parts:
    types, parts = _lfm2_mixers(config)
    dense = config.number("num_dense_layers", low=0)
    moe = MoE(
        layers=len(types) - dense,
        experts=config.number("num_experts"),
        active_experts=config.number("num_experts_per_tok"),
        size=config.number("moe_intermediate_size"),
    )
    return [*parts, moe, *([_mlp(config, dense)] if dense else [])]


def _jamba(config: Config) -> Parts:
    layers = range(config.number("num_hidden_layers"))

    def count(kind: str) -> int:
        period = config.number(f"{kind}_layer_period")
        offset = config.number(f"{kind}_layer_offset", low=0)
        return sum(i % period == offset for i in layers)

    full, experts = count("attn"), config.number("num_experts", "num_local_experts")
    sparse = count("expert") if experts > 1 else 0
    hidden = config.number("hidden_size")
    rank = config.get("mamba_dt_rank")
    size = config.number("intermediate_size")
    parts: Parts = [
        _attention(config, full),
        Mamba1(
            layers=len(layers) - full,
            inner_size=_expanded(config),
            state_dim=config.number("mamba_d_state"),
            dt_rank=-(-hidden // 16) if rank == "auto" else config.number("mamba_dt_rank"),
            kernel=config.number("mamba_d_conv"),
        ),
    ]
    if sparse:
        active = config.number("num_experts_per_tok")
        parts.append(MoE(layers=sparse, experts=experts, active_experts=active, size=size))
    return [*parts, MLP(layers=len(layers) - sparse, size=size)]


def _minimax(config: Config) -> Parts:
    types = config.layer_types("layer_types")
    attention = _attention(config, types.count(FULL))
    lightning = LightningAttention(
        layers=types.count(LINEAR), heads=attention.query_heads, head_dim=attention.head_dim
    )
    moe = MoE(
        layers=len(types),
        experts=config.number("num_local_experts", "num_experts"),
        active_experts=config.number("num_experts_per_tok"),
        size=config.number("intermediate_size"),
    )
    return [attention, lightning, moe]


FAMILIES: dict[str, Callable[[Config], Parts]] = {
    "bailing_hybrid": _bailing_hybrid,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "llama": _transformer,
    "minimax": _minimax,
    "mistral": _transformer,
    "nemotron_h": _nemotron_h,
    "olmo_hybrid": _olmo_hybrid,
    "qwen2": _transformer,
    "qwen3": _transformer,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "qwen3_5_moe_text": _qwen,
    "qwen3_5_text": _qwen,
    "qwen3_next": _qwen,
    "zamba2": _zamba2,
}
