"""Which families of the transformers library can continue a prefill from a state, and a tiny model of each.

Measured with transformers 5.17 to 5.24: a prefill in pieces against one in one go, in float64. The refused ones give
wrong logits without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marconi_sim.base.errors import UserError, did_you_mean
from marconi_sim.model.config import Config, shown

_MAMBA_1 = "its code reads the recurrent state for a single new token only, a longer prefill starts from an empty one"

REFUSED = {
    "jamba": _MAMBA_1,
    "zamba": _MAMBA_1,
    "mamba": _MAMBA_1,
    "falcon_mamba": _MAMBA_1,
    "minimax": "its code continues a prefill of more than one token as if the prefix were empty",
    "recurrent_gemma": "its state lies in the model's layers and is reset by every prefill, it cannot be stored",
}

# A checkpoint of the model for images and texts keeps the language model's configuration inside its own.
_WRAPPERS = ("qwen3_5", "qwen3_5_moe")

# The wide range of weights makes large logits: a wrong state moves them by more than 1.
_COMMON = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ALTERNATING = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_MAMBA_2 = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
_QWEN = {**_DELTA, "num_hidden_layers": 4, "layer_types": _ALTERNATING, "head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LATENT = {
    **_EXPERTS,
    "num_hidden_layers": 4,
    "layer_types": _ALTERNATING,
    "intermediate_size": 48,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "n_group": 1,
    "topk_group": 1,
}

_TINY: dict[str, dict[str, Any]] = {
    "bamba": {
        **_MAMBA_2,
        "num_hidden_layers": 4,
        "attn_layer_indices": [2],
        "intermediate_size": 48,
    },
    "falcon_h1": {**_MAMBA_2, "mamba_d_ssm": 64, "num_hidden_layers": 3, "intermediate_size": 48},
    "granitemoehybrid": {
        **_MAMBA_2,
        "num_hidden_layers": 4,
        "layer_types": _ALTERNATING,
        "intermediate_size": 16,
        "shared_intermediate_size": 48,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "M-M*E-",
        "head_dim": 8,
        "intermediate_size": 48,
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "conv_kernel": 4,
        "expand": 2,
        "chunk_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
    },
    "zamba2": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "linear_attention", "hybrid", "linear_attention"],
        "num_key_value_heads": 4,
        "intermediate_size": 48,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_ngroups": 2,
        "n_mamba_heads": 4,
        "chunk_size": 16,
        "use_mem_rope": True,
    },
    "qwen3_next": {
        **_QWEN,
        **_EXPERTS,
        "intermediate_size": 48,
        "shared_expert_intermediate_size": 16,
    },
    "qwen3_5_text": {**_QWEN, "intermediate_size": 48},
    "qwen3_5_moe_text": {**_QWEN, **_EXPERTS, "shared_expert_intermediate_size": 16},
    "kimi_linear": {**_LATENT, "linear_head_dim": 8, "linear_num_heads": 4},
    "bailing_hybrid": {**_LATENT, "head_dim": 8, "num_mtp_layers": 0},
    "olmo_hybrid": {
        **_DELTA,
        "num_hidden_layers": 4,
        "layer_types": _ALTERNATING,
        "num_key_value_heads": 4,
        "intermediate_size": 48,
        "linear_num_key_heads": 4,
    },
    "lfm2": {
        "num_hidden_layers": 4,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "intermediate_size": 48,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": 3,
    },
    "lfm2_moe": {
        **_EXPERTS,
        "num_hidden_layers": 4,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "intermediate_size": 48,
        "num_dense_layers": 1,
        "conv_L_cache": 3,
    },
}

FAMILIES = tuple(_TINY)


def tiny_config(family: str) -> dict[str, Any]:
    """Return the configuration of a tiny model of a family, in Hugging Face's layout.

    Args:
        family: one of `FAMILIES`: the `model_type` of its configuration.

    Raises:
        UserError: a family that is refused, with the reason, or an unknown one.
    """
    check_family(family, "--backend")
    return {**_COMMON, **_TINY[family], "model_type": family}


def check_family(family: str, place: str) -> None:
    """Raise unless models of a family can continue a prefill from a state.

    Args:
        family: the `model_type` of a configuration.
        place: where it stands, for the message.

    Raises:
        UserError: a family that is refused, with the reason, or an unknown one, with those that are supported.
    """
    if family in REFUSED:
        raise UserError(
            f"{place}: transformers' '{family}' is not supported: {REFUSED[family]};"
            f" use one of: {', '.join(FAMILIES)}"
        )
    if family not in FAMILIES:
        raise UserError(
            f"{place}: model_type {shown(family)}: unknown{did_you_mean(family, FAMILIES)}"
        )


def check_config(config: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the configuration of the language model in a configuration.

    Args:
        config: in Hugging Face's layout, as in a `config.json`.
        place: where it stands, for the message.

    Raises:
        UserError: it names no family or one that is not supported, or has a sliding window that is used.
    """
    inner = config.get("text_config") if config.get("model_type") in _WRAPPERS else None
    if inner is not None and not isinstance(inner, Mapping):
        raise UserError(f"{place}: text_config = {shown(inner)}, expected an object")
    text = dict(config if inner is None else inner)
    family = text.get("model_type")
    if family is not None and not isinstance(family, str):
        raise UserError(
            f"{place}: model_type = {shown(family)}, expected one of: {', '.join(FAMILIES)}"
        )
    if family is None:
        raise UserError(
            f"{place}: key 'model_type' is missing, expected one of: {', '.join(FAMILIES)}"
        )
    check_family(family, place)
    reader = Config(text, place, family)
    if text.get("sliding_window") is not None and not reader.flag("use_sliding_window", True):
        text["sliding_window"] = None  # families that do not know the flag would use the window
    layers = text.get("layer_types")
    if layers is not None and not isinstance(layers, list | tuple):
        raise reader.problem(f"layer_types = {shown(layers)}, expected a list of kinds of layers")
    windows = [
        name
        for name in layers or ()
        if isinstance(name, str) and ("sliding" in name or "chunked" in name)
    ]
    if windows or text.get("sliding_window") is not None:
        what = (
            f"layer type '{windows[0]}'"
            if windows
            else f"sliding_window = {shown(text['sliding_window'])}"
        )
        raise UserError(
            f"{place}: {what} is not supported: a sliding window keeps the last tokens' KV only, it cannot be cut"
            " where a prefix ends; use a model whose attention is full"
        )
    return text
