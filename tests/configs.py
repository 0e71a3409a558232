"""Small Hugging Face configurations of every family, written by hand in the form that is published."""

from __future__ import annotations

from typing import Any

_ATTENTION = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
_MAMBA2 = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4,
    "mamba_expand": 2,
}  # fmt: skip
_DELTA = {
    "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_num_value_heads": 4, "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
_QWEN_MOE = {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 48,
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 24,
}  # fmt: skip
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_PLAIN = {**_ATTENTION, "num_hidden_layers": 3, "intermediate_size": 96, "dtype": "float16"}
_FOUR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]

CONFIGS: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {
        **_ATTENTION, **_LATENT, **_TOKENS, "num_hidden_layers": 7, "layer_group_size": 3, "head_dim": 16,
        "short_conv_kernel_size": 4, "first_k_dense_replace": 2, "intermediate_size": 96, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 40, "num_shared_experts": 2, "n_group": 2, "topk_group": 1,
        "num_nextn_predict_layers": 1,
    },
    "bamba": {**_ATTENTION, **_MAMBA2, "num_hidden_layers": 4, "attn_layer_indices": [2], "intermediate_size": 96},
    "falcon_h1": {
        **_ATTENTION, **_MAMBA2, "mamba_d_ssm": 48, "mamba_n_heads": 4, "mamba_d_head": 12, "num_hidden_layers": 3,
        "intermediate_size": 96,
    },
    "granitemoehybrid": {
        **_ATTENTION, **_MAMBA2, "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"],
        "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 40, "shared_intermediate_size": 48,
        "torch_dtype": "bfloat16",
    },
    "jamba": {
        **_ATTENTION, "num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2,
        "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 96,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    },
    "kimi_linear": {
        **_ATTENTION, **_LATENT, **_TOKENS, "num_hidden_layers": 5, "num_key_value_heads": 4, "intermediate_size": 96,
        "linear_attn_config": {
            "full_attn_layers": [4], "kda_layers": [1, 2, 3, 5], "head_dim": 16, "num_heads": 2,
            "short_conv_kernel_size": 4,
        },
        "first_k_dense_replace": 1, "num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 40,
        "num_shared_experts": 1,
    },
    "lfm2": {
        **_ATTENTION, "num_hidden_layers": 4, "full_attn_idxs": [1], "conv_L_cache": 3, "block_ff_dim": 100,
        "block_multiple_of": 16, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.5,
    },
    "lfm2_moe": {
        **_ATTENTION, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"],
        "conv_L_cache": 3, "num_dense_layers": 1, "intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
    },
    "llama": _PLAIN,
    "minimax": {
        **_ATTENTION, "num_hidden_layers": 4, "layer_types": _FOUR, "intermediate_size": 96, "num_local_experts": 4,
        "num_experts_per_tok": 2, "head_dim": 20,
    },
    "mistral": {**_PLAIN, "sliding_window": None, "head_dim": 24},
    "nemotron_h": {
        **_ATTENTION, "hybrid_override_pattern": "M-M*MEME", "head_dim": 24, "mamba_num_heads": 4, "mamba_head_dim": 12,
        "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "intermediate_size": 96, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 48,
        "moe_latent_size": 32,
    },
    "olmo_hybrid": {
        **_ATTENTION, **_DELTA, **_TOKENS, "linear_num_key_heads": 4, "num_hidden_layers": 4, "layer_types": _FOUR,
        "intermediate_size": 96,
    },
    "qwen2": {**_PLAIN, "use_sliding_window": False, "sliding_window": 4096},
    "qwen3": {**_PLAIN, "use_sliding_window": False, "sliding_window": 4096, "head_dim": 32},
    "qwen3_5": {
        "text_config": {
            "model_type": "qwen3_5_text", **_ATTENTION, **_DELTA, "num_hidden_layers": 4, "head_dim": 32,
            "full_attention_interval": 4, "intermediate_size": 96, "dtype": "bfloat16", "mamba_ssm_dtype": "float32",
        },
        "vision_config": {"depth": 1, "hidden_size": 16, "num_heads": 2, "out_hidden_size": 64},
    },
    "qwen3_5_moe": {
        "text_config": {
            "model_type": "qwen3_5_moe_text", **_ATTENTION, **_DELTA, **_QWEN_MOE, "num_hidden_layers": 4,
            "head_dim": 32, "layer_types": _FOUR,
        },
        "vision_config": {"depth": 1, "hidden_size": 16, "num_heads": 2, "out_hidden_size": 64},
    },
    "qwen3_5_moe_text": {
        **_ATTENTION, **_DELTA, **_QWEN_MOE, "num_hidden_layers": 4, "head_dim": 32, "layer_types": _FOUR,
    },
    "qwen3_5_text": {
        **_ATTENTION, **_DELTA, "num_hidden_layers": 4, "head_dim": 32, "layer_types": _FOUR, "intermediate_size": 96,
    },
    "qwen3_next": {
        **_ATTENTION, **_DELTA, **_QWEN_MOE, "num_hidden_layers": 4, "head_dim": 32, "full_attention_interval": 4,
        "decoder_sparse_step": 1, "mlp_only_layers": [0], "intermediate_size": 96,
    },
    "zamba2": {
        **_ATTENTION, "num_key_value_heads": 4, "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba"], "n_mamba_heads": 8, "mamba_d_state": 16,
        "mamba_ngroups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "intermediate_size": 96, "adapter_rank": 8,
        "num_mem_blocks": 2,
    },
}  # fmt: skip


def config(family: str, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a family with other values; None: without the key."""
    values = {"model_type": family, **CONFIGS[family], **changes}
    return {key: value for key, value in values.items() if value is not None or key not in changes}
