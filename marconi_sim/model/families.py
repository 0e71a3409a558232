"""The families of models whose Hugging Face configurations can be read: `model_type` -> what gives the layers."""

from __future__ import annotations

from collections.abc import Callable

from marconi_sim.model.config import FULL, Config
from marconi_sim.model.family_parts import Parts, attention, mlp
from marconi_sim.model.linear_families import (
    bailing_hybrid,
    kimi_linear,
    lfm2,
    lfm2_moe,
    minimax,
    olmo_hybrid,
    qwen,
)
from marconi_sim.model.mamba_families import bamba, falcon_h1, granite, jamba, nemotron_h, zamba2


def _transformer(config: Config) -> Parts:
    layers = config.number("num_hidden_layers")
    if config.family == "mistral" and "sliding_window" not in config.values:
        raise config.problem(
            "no key 'sliding_window'; a mistral model needs it: null if its attention is full,"
            " without the key transformers takes a window of 4096"
        )
    if config.get("layer_types") is not None:
        config.layer_types("layer_types", allowed=(FULL,))
    return [attention(config, layers), mlp(config, layers)]


FAMILIES: dict[str, Callable[[Config], Parts]] = {
    "bailing_hybrid": bailing_hybrid,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granite,
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "llama": _transformer,
    "minimax": minimax,
    "mistral": _transformer,
    "nemotron_h": nemotron_h,
    "olmo_hybrid": olmo_hybrid,
    "qwen2": _transformer,
    "qwen3": _transformer,
    "qwen3_5": qwen,
    "qwen3_5_moe": qwen,
    "qwen3_5_moe_text": qwen,
    "qwen3_5_text": qwen,
    "qwen3_next": qwen,
    "zamba2": zamba2,
}
