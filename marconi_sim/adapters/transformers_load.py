"""Weights of transformers' models: random ones, or those of a local checkpoint; what is wrong is said in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from marconi_sim.adapters import require
from marconi_sim.adapters.backend import find_device, find_dtype
from marconi_sim.adapters.families import check_config
from marconi_sim.adapters.memory import check_weights, running_out_told
from marconi_sim.base.errors import UserError
from marconi_sim.base.units import counted
from marconi_sim.model.config_file import read_json

transformers = require("transformers")

_LONGEST_REASON = 300  # characters of what transformers says


def _one_line(error: Exception) -> str:
    # Some errors point to a table in the log, which is not written (`_quiet`).
    text = " ".join(str(error).split()).partition(" For details look at")[0]
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(str(size) for size in sizes)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn whatever transformers raises in the block, about a configuration or a checkpoint, into one line.

    Raises:
        UserError: `what`, and the reason.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what} ({_one_line(error)})") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from writing progress bars and its log inside the block; what is an error it raises too."""
    logs = transformers.utils.logging
    verbosity, has_bar = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity(logs.CRITICAL)
    if has_bar:
        logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(verbosity)
        if has_bar:
            logs.enable_progress_bar()


def _parse(config: Mapping[str, Any], place: str, device: torch.device, dtype: str) -> Any:
    """Return transformers' object of a configuration whose weights fit the memory.

    Raises:
        UserError: transformers refuses it, or its weights do not fit.
    """
    with _told(f"{place}: transformers cannot make a model of it"):
        parsed = transformers.AutoConfig.for_model(**config)
        with torch.device("meta"):  # weights without content, to be counted
            model = transformers.AutoModelForCausalLM.from_config(parsed)
        check_weights(device, sum(one.numel() for one in model.parameters()), dtype)
    return parsed


def random_model(config: Mapping[str, Any], place: str, device: str, dtype: str, seed: int) -> Any:
    """Return transformers' model of a configuration with random weights.

    Args:
        config: what `families.check_config` has returned.
        place: where it stands, for messages.
        device: as `find_device` takes it.
        dtype: of the weights, one of `backend.DTYPES`.
        seed: of the weights.

    Raises:
        UserError: transformers refuses the configuration, or the weights do not fit the memory.
    """
    target, precision = find_device(device), find_dtype(dtype)
    devices = [target] if target.type == "cuda" else []
    with _quiet():
        parsed = _parse(config, place, target, dtype)
        with (
            _told(f"{place}: transformers cannot make a model of it"),
            running_out_told(target),
            torch.random.fork_rng(devices),
            torch.device(target),
        ):
            torch.manual_seed(seed)
            return transformers.AutoModelForCausalLM.from_config(parsed, dtype=precision)


def checkpoint_model(folder: Path, device: str, dtype: str) -> Any:
    """Return transformers' model of a checkpoint.

    Args:
        folder: with a config.json and the weights as safetensors.
        device: as `find_device` takes it.
        dtype: of the weights, one of `backend.DTYPES`.

    Raises:
        UserError: no configuration, one that is not supported, weights that do not fit the memory, or weights that
            cannot be read, have another shape or are not there.
    """
    target, precision = find_device(device), find_dtype(dtype)
    path = folder / "config.json"
    config = check_config(read_json(path), str(path))
    with _quiet():
        parsed = _parse(config, str(path), target, dtype)
        instead = f"{path} gives a model of this shape with random weights"
        with (
            _told(f"{folder}: not a checkpoint that transformers can load; {instead}"),
            running_out_told(target),
        ):
            model, found = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=parsed,
                dtype=precision,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            model = model.to(target)
    # What is missing or does not fit is filled with random numbers.
    if mismatched := sorted(found["mismatched_keys"]):
        key, there, expected = mismatched[0]
        raise UserError(
            f"{folder}: not a checkpoint of its config.json, tensor '{key}' is {_shape(there)}, expected"
            f" {_shape(expected)}; {instead}"
        )
    if missing := sorted(found["missing_keys"]):
        raise UserError(
            f"{folder}: not a whole checkpoint, {counted(len(missing), 'tensor')} of the model missing, the first is"
            f" '{missing[0]}'; {instead}"
        )
    return model
