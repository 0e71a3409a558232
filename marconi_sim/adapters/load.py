"""A backend by name, and the model shape that the simulator must use with it."""

from __future__ import annotations

from dataclasses import replace

from marconi_sim.adapters.backend import Backend, find_device, find_dtype, footprint
from marconi_sim.adapters.families import FAMILIES, REFUSED
from marconi_sim.adapters.hybrid_config import PRESETS
from marconi_sim.adapters.hybrid_model import HybridModel
from marconi_sim.adapters.memory import check_weights
from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.model import ExactModel, read_config


def open_backend(
    name: str, *, device: str = "cpu", dtype: str | None = None, seed: int = 0
) -> Backend:
    """Return a model that can continue a prefill.

    Args:
        name: a shape of the own hybrid model; a family of transformers, for a tiny model; the path of a config.json,
            for a model of its shape; or the folder of a checkpoint.
        device: `cpu`, `cuda`, `cuda:1` ...
        dtype: of the weights; None: the shape's own, float32 for those of transformers.
        seed: of random weights.

    Raises:
        UsageError: an unknown name, device or dtype.
        UserError: a model that cannot be used, or does not fit the memory.
    """
    target = find_device(device)
    if dtype is not None:
        find_dtype(dtype)
    if name in PRESETS:
        shape = replace(PRESETS[name], seed=seed, dtype=dtype or PRESETS[name].dtype)
        check_weights(target, shape.parameters, shape.dtype)
        return HybridModel(shape, device)
    if name not in (*FAMILIES, *REFUSED) and not any(mark in name for mark in "/\\."):
        known = (*PRESETS, *FAMILIES)
        raise UsageError(
            f"--backend {name}: unknown{did_you_mean(name, known)}"
            " (or the path of a config.json or of a checkpoint's folder)"
        )
    from marconi_sim.adapters.transformers_model import load_transformers

    return load_transformers(name, device=device, dtype=dtype or "float32", seed=seed)


def model_of(backend: Backend) -> ExactModel:
    """Return the exact accounting of a backend's model: its bytes are those of the backend's tensors.

    Raises:
        UserError: they are not.
    """
    model = read_config(backend.config, backend.name, backend.name).with_options(backend.storage)
    measured = footprint(backend)
    if (model.kv_bytes, model.state_bytes) != measured:
        raise UserError(
            f"backend '{backend.name}': {measured.kv_bytes_per_token} bytes of KV per token and"
            f" {measured.state_bytes} per state, the accounting says {model.kv_bytes} and {model.state_bytes}"
        )
    return model
