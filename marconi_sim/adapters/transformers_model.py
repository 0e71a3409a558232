"""Models of the transformers library as a backend: by configuration with random weights, or a local checkpoint.

Their caches give no states inside a forward pass, so a prefill stops at every cut; no token is computed twice. What is
restored goes through the cache's own update methods, which set all that the models ask it for.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marconi_sim.adapters import require
from marconi_sim.adapters.backend import (
    KV,
    Prefilled,
    State,
    check_arguments,
    find_device,
    find_dtype,
    slice_kv,
)
from marconi_sim.adapters.families import FAMILIES, REFUSED, check_config, tiny_config
from marconi_sim.adapters.transformers_load import checkpoint_model, random_model
from marconi_sim.base.errors import UserError
from marconi_sim.model.config_file import decoded, read_json

transformers = require("transformers")
cache_utils = require("transformers.cache_utils")

# The name of the cache in a model's forward method, newest first. A wrong name is swallowed without an error.
_CACHE_KEYWORDS = ("cache", "past_key_values")


def _cache_keyword(model: Any) -> str:
    names = inspect.signature(model.forward).parameters
    return next(name for name in _CACHE_KEYWORDS if name in names)


def _attention_layers(cache: Any) -> Iterator[Any]:
    """Yield the layers of a cache that hold KV; in some families a layer holds KV and a state."""
    for layer in cache.layers:
        if isinstance(layer, cache_utils.CacheLayerMixin):
            yield layer


def _recurrent_slots(cache: Any) -> Iterator[tuple[Any, int]]:
    """Yield (layer, number of a state in it) of every state of a cache."""
    for layer in cache.layers:
        if isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin):
            for slot in range(layer.number_of_states):
                yield layer, slot


def _copy_states(cache: Any) -> State:
    # Copied: the cache updates its states in place.
    found = []
    for layer, slot in _recurrent_slots(cache):
        found += [layer.conv_states[slot], layer.recurrent_states[slot]]
    return tuple(
        tensor.detach().clone(memory_format=torch.contiguous_format)
        for tensor in found
        if tensor is not None
    )


class TransformersModel:
    """The backend of a model of the transformers library.

    Args:
        model: a causal language model that `load_transformers` has checked.
        name: what it is, for reports.
        random_weights: whether its weights are random numbers, those of a checkpoint otherwise.
    """

    def __init__(self, model: Any, name: str, *, random_weights: bool) -> None:
        self._model = model.eval()
        self._keyword = _cache_keyword(model)
        self.name = name
        self.random_weights = random_weights
        text_config = model.config.get_text_config()
        self.vocabulary = int(text_config.vocab_size)
        self.config: dict[str, Any] = text_config.to_dict()
        self.device = model.device
        if self.device.type == "cpu":
            # It says that there are no CUDA kernels.
            logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)
        for module in model.modules():
            # NemotronH and Zamba2 bound the step size from below in a scan, but not in a step of one token: without the
            # bound both agree. Other families have no lower bound.
            if hasattr(module, "time_step_limit"):
                module.time_step_limit = (0.0, module.time_step_limit[1])
        if model.dtype == torch.float64:
            model.double()  # some weights are float32 whatever the model is
            model.set_experts_implementation("eager")  # the default has no float64
        self._has, _ = self._probe()

    @property
    def storage(self) -> dict[str, str]:
        """How KV and states are stored (`Backend.storage`): measured anew, `strict_float64` changes it."""
        return self._probe()[1]

    def _probe(self) -> tuple[list[tuple[bool, bool]], dict[str, str]]:
        """Find out by a prefill of one token which states there are (convolution, recurrent), and all dtypes."""
        cache = transformers.DynamicCache(config=self._model.config)
        if not list(_attention_layers(cache)):
            raise UserError(
                f"{self.name}: no layer of its configuration has attention, transformers cannot continue such a model"
            )
        with torch.no_grad():
            self._forward(torch.zeros(1, dtype=torch.int64, device=self.device), 0, cache)
        slots = list(_recurrent_slots(cache))
        convs = [layer.conv_states[slot] for layer, slot in slots]
        recurrents = [layer.recurrent_states[slot] for layer, slot in slots]
        storage = {"conv_columns": "kernel"}
        for key, tensors in (
            ("kv_dtype", [layer.keys for layer in _attention_layers(cache)]),
            ("conv_dtype", convs),
            ("state_dtype", recurrents),
        ):
            dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
            if len(dtypes) > 1:
                raise UserError(
                    f"{self.name}: {key} differs from layer to layer, which is not supported"
                )
            dtype = dtypes.pop() if dtypes else self._model.dtype
            storage[key] = str(dtype).removeprefix("torch.")
        has = [
            (conv is not None, state is not None)
            for conv, state in zip(convs, recurrents, strict=True)
        ]
        return has, storage

    def _forward(self, tokens: Tensor, start: int, cache: Any) -> Tensor:
        """Run the model on the next tokens; the cache grows by them. Returns the last logits."""
        end = start + len(tokens)
        output = self._model(
            input_ids=tokens[None],
            # Bamba counts from 0 where they are not given.
            position_ids=torch.arange(start, end, device=self.device)[None],
            use_cache=True,
            logits_to_keep=1,
            **{self._keyword: cache},
        )
        lengths = {layer.get_seq_length() for layer in _attention_layers(cache)}
        has_states = all(layer.has_previous_state[slot] for layer, slot in _recurrent_slots(cache))
        if lengths - {end} or not has_states:
            raise RuntimeError(
                f"{self.name}: its cache holds {sorted(lengths)} tokens after {end}: it was not used"
            )
        logits: Tensor = output.logits[0, -1].clone()
        return logits

    def _restore(self, kv: KV | None, state: State | None) -> Any:
        """Return a cache that holds copies of a prefix."""
        cache = transformers.DynamicCache(config=self._model.config)
        tensors = iter(kv or ())
        if kv:
            for layer in _attention_layers(cache):
                layer.update(next(tensors), next(tensors))
        tensors = iter(state or ())
        if state:
            for (layer, slot), (conv, recurrent) in zip(
                _recurrent_slots(cache), self._has, strict=True
            ):
                if conv:
                    columns = next(tensors)
                    layer.update_conv_state(
                        columns, state_idx=slot, conv_kernel_size=columns.shape[-1]
                    )
                if recurrent:
                    layer.update_recurrent_state(next(tensors), state_idx=slot)
        return cache

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill the tokens [start, end), piece by piece between the cuts (`Backend.prefill`)."""
        end = check_arguments(tokens, start, kv, state, cuts)
        tokens = tokens.to(self.device)
        logits, states = {}, {}
        with torch.no_grad():
            cache = self._restore(kv, state)
            before = start
            for after in [*cuts, *([] if cuts and cuts[-1] == end else [end])]:
                logits[after] = self._forward(tokens[before - start : after - start], before, cache)
                before = after
                if after in cuts:
                    states[after] = _copy_states(cache)
            layers = _attention_layers(cache)
            every = tuple(tensor for layer in layers for tensor in (layer.keys, layer.values))
            return Prefilled(logits, slice_kv(every, start, end), states)


def load_transformers(
    source: str | Path | Mapping[str, Any],
    *,
    device: str = "cpu",
    dtype: str = "float32",
    seed: int = 0,
) -> TransformersModel:
    """Return a model of the transformers library as a backend.

    Args:
        source: a family (one of `families.FAMILIES`) for a tiny model; a `config.json` or its content for a model of
            that shape with random weights; the folder of a checkpoint for that model. Nothing is downloaded.
        device: as `find_device` takes it.
        dtype: of the weights, one of `backend.DTYPES`.
        seed: of random weights.

    Raises:
        RuntimeError: called inside `exactness.strict_float64`.
        UserError: a family that cannot continue a prefill, with the reason; an unknown one; a sliding window; a file or
            folder that is no configuration or no whole checkpoint; weights that do not fit the memory; a device that is
            not there or an unknown dtype.
    """
    if torch.float32 is torch.float64:
        raise RuntimeError("load the model before the block of strict_float64")
    find_device(device)
    find_dtype(dtype)
    if isinstance(source, Mapping):
        config = check_config(decoded(dict(source)), "configuration")
        model = random_model(config, "configuration", device, dtype, seed)
        name = f"transformers {config['model_type']}, random weights"
        return TransformersModel(model, name, random_weights=True)
    if isinstance(source, str) and (source in FAMILIES or source in REFUSED):
        model = random_model(tiny_config(source), source, device, dtype, seed)
        name = f"transformers {source}, tiny, random weights"
        return TransformersModel(model, name, random_weights=True)
    path = Path(source)
    if path.is_dir():
        name = f"checkpoint {path.resolve().name}"
        return TransformersModel(checkpoint_model(path, device, dtype), name, random_weights=False)
    if not path.exists():
        raise UserError(
            f"{source}: neither a family ({', '.join(FAMILIES)}) nor a config.json nor the folder of a checkpoint"
        )
    config = check_config(read_json(path), str(path))
    model = random_model(config, str(path), device, dtype, seed)
    name = f"transformers {config['model_type']} of {path}, random weights"
    return TransformersModel(model, name, random_weights=True)
