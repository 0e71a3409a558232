"""`read_config`: a Hugging Face config.json as a model of the accounting `exact`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError, did_you_mean
from marconi_sim.model.config import Config, shown
from marconi_sim.model.config_file import decoded
from marconi_sim.model.exact import ExactModel
from marconi_sim.model.families import FAMILIES
from marconi_sim.model.storage import Storage

_DTYPE = ("dtype", "torch_dtype")
_DRAFTS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")


def _text_config(config: Mapping[str, Any], place: str | Path) -> Mapping[str, Any]:
    """Return the configuration of the language model: nested in that of a model that also sees images."""
    text = config.get("text_config")
    if text is None:
        return config
    if not isinstance(text, Mapping):
        raise UserError(f"{place}: text_config = {shown(text)}, expected an object")
    outer = {key: config[key] for key in ("model_type", *_DTYPE) if config.get(key) is not None}
    return {
        **outer,
        **{key: value for key, value in text.items() if value is not None or key not in outer},
    }


def read_config(config: Mapping[str, Any], name: str, place: str | Path) -> ExactModel:
    """Return the model that a Hugging Face configuration describes.

    KV and the convolution's inputs have the configuration's dtype, the recurrent state float32 unless it names another.

    Args:
        config: the content of a config.json, or `config.to_dict()` of transformers' object.
        name: of the model.
        place: where the configuration came from, for messages and results.

    Raises:
        UserError: a family that is not known, a key that is missing or has a value that is not allowed, or attention
            with a sliding window.
    """
    config = decoded(dict(config))
    values = _text_config(config, place)
    family = values.get("model_type")
    if family is None:
        raise UserError(f"{place}: no key 'model_type'; known families: {', '.join(FAMILIES)}")
    if not isinstance(family, str):
        raise UserError(
            f"{place}: model_type = {shown(family)}, expected one of: {', '.join(FAMILIES)}"
        )
    if family not in FAMILIES:
        raise UserError(
            f"{place}: model_type {shown(family)}: unknown{did_you_mean(family, FAMILIES)}"
        )
    reader = Config(values, place, family)
    reader.refuse_window()
    hidden = reader.number("hidden_size")
    parts = tuple(part for part in FAMILIES[family](reader) if part.layers)
    for part in parts:
        if part.layers < 0:
            raise reader.problem("more layers of one kind than there are layers")
    dtype = reader.dtype(*_DTYPE)
    if dtype is None:
        dtype = Storage().kv_dtype
        reader.notes.append(f"It names no dtype: {dtype} is assumed for KV and convolution.")
    state = reader.dtype("mamba_ssm_cache_dtype", "mamba_ssm_dtype") or Storage().state_dtype
    if values.get("text_config") is not config.get("text_config") and "vision_config" in config:
        reader.notes.append("The vision part is left out.")
    if reader.get(*_DRAFTS):
        reader.notes.append("Layers that predict draft tokens are left out.")
    model = ExactModel(
        name=name,
        path=Path(place),
        title=f"{name}, a {family} model",
        source="a Hugging Face configuration",
        hidden_size=hidden,
        parts=parts,
        storage=replace(Storage(), kv_dtype=dtype, conv_dtype=dtype, state_dtype=state),
        notes=tuple(reader.notes),
    )
    model.check(str(place))
    return model
