"""Model shapes: data files in `marconi_sim/models/`, or a user's own, and what they cost.

    title = "Hybrid 7B of the Marconi paper"
    source = "arXiv 2411.19379, Table 1"
    accounting = "paper"
    attention_layers = 4
    ssm_layers = 24
    mlp_layers = 28
    model_dimension = 4096      # D
    state_dimension = 128       # N

The accounting `paper` is the paper's Table 1 and appendix A: FP16, multi-head attention, no expand factor in the state.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marconi_sim.core.shape import Shape
from marconi_sim.errors import UsageError, UserError, did_you_mean
from marconi_sim.files import readable_file

_FOLDER = Path(__file__).parent / "models"
_TEXTS = ("title", "source", "accounting")
_LAYERS = ("attention_layers", "ssm_layers", "mlp_layers")
_DIMENSIONS = ("model_dimension", "state_dimension")
VARIABLE = (*_LAYERS, *_DIMENSIONS)  # what `vary` can change
_LARGEST = 2**20
ACCOUNTINGS = ("paper",)


@dataclass(frozen=True)
class Model:
    """A model as the accounting `paper` sees it.

    Attributes:
        name: the stem of its file.
        path: its file.
        attention_layers, ssm_layers, mlp_layers: numbers of layers.
        model_dimension: D, elements.
        state_dimension: N, elements.
    """

    name: str
    path: Path
    title: str
    source: str
    accounting: str
    attention_layers: int
    ssm_layers: int
    mlp_layers: int
    model_dimension: int
    state_dimension: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV per token: 4 D per attention layer (Table 1, FP16)."""
        return self.attention_layers * 4 * self.model_dimension

    @property
    def state_bytes(self) -> int:
        """Bytes of one checkpoint: 2 D N and the convolution's (2 D + 2 N) channels x 4 x 2 bytes per SSM layer."""
        D, N = self.model_dimension, self.state_dimension
        return self.ssm_layers * (2 * D * N + (2 * D + 2 * N) * 4 * 2)

    def flops_by_layer(self, tokens: float) -> dict[str, float]:
        """Return the FLOPs of a prefill of `tokens` tokens by kind of layer (Table 1; SSM with 10 L D)."""
        L, D, N = tokens, self.model_dimension, self.state_dimension
        return {
            "attention": self.attention_layers * (8.0 * L * D**2 + 4.0 * L**2 * D),
            "ssm": self.ssm_layers * (12.0 * L * D**2 + 16.0 * L * D * N + 10.0 * L * D),
            "mlp": self.mlp_layers * 16.0 * L * D**2,
        }

    def numbers(self) -> dict[str, int]:
        """Return what tells the model from others: layers, dimensions, and the bytes that follow from them."""
        return {
            **{key: getattr(self, key) for key in (*_LAYERS, *_DIMENSIONS)},
            "kv_bytes_per_token": self.kv_bytes,
            "state_bytes": self.state_bytes,
        }

    @property
    def shape(self) -> Shape:
        """What the kernels need of it."""
        quadratic = self.attention_layers * 4.0 * self.model_dimension
        return Shape(
            kv_bytes=self.kv_bytes,
            state_bytes=self.state_bytes,
            flops_linear=sum(self.flops_by_layer(1.0).values()) - quadratic,
            flops_quadratic=quadratic,
        )


def models() -> dict[str, Path]:
    """Return the shipped models by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def _whole_number(value: Any, key: str, place: str | Path) -> int:
    low = 0 if key in _LAYERS else 1
    if type(value) is not int or not low <= value <= _LARGEST:
        raise UserError(
            f"{place}: {key} = {value!r}, expected a whole number from {low} to {_LARGEST}"
        )
    return value


def _check_layers(numbers: Mapping[str, int], place: str | Path) -> None:
    if numbers["attention_layers"] + numbers["ssm_layers"] == 0:
        raise UserError(f"{place}: no attention and no SSM layers, so there is nothing to cache")


def vary(model: Model, changes: Mapping[str, Any]) -> Model:
    """Return the model with other numbers of layers or other dimensions; its name says what differs.

    Raises:
        UserError: an unknown key, or a number that is not allowed.
    """
    keys = VARIABLE
    for key, value in changes.items():
        if key not in keys:
            raise UserError(f"model '{model.name}': unknown key '{key}'{did_you_mean(key, keys)}")
        _whole_number(value, key, f"model '{model.name}'")
    different = {key: value for key, value in changes.items() if value != getattr(model, key)}
    if not different:
        return model
    text = ", ".join(f"{key}={value}" for key, value in different.items())
    changed = replace(
        model,
        name=f"{model.name}[{text}]",
        title=f"{model.title}, with {text}",
        **different,
    )
    _check_layers({key: getattr(changed, key) for key in _LAYERS}, f"model '{changed.name}'")
    return changed


def load_model(name_or_path: str | Path) -> Model:
    """Return a shipped model by name, or a user's own by the path of its TOML file.

    Raises:
        UsageError: an unknown name.
        UserError: a file that is not a model; the message names the key.
    """
    known = models()
    if isinstance(name_or_path, str) and name_or_path in known:
        path = known[name_or_path]
    elif isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith(".toml"):
        path = readable_file(Path(name_or_path), "model")
    else:
        raise UsageError(
            f"model '{name_or_path}': unknown{did_you_mean(name_or_path, known)}"
            " (or the path of a .toml file)"
        )
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML ({error})") from error
    keys = (*_TEXTS, *_LAYERS, *_DIMENSIONS)
    for key in values:
        if key not in keys:
            raise UserError(f"{path}: unknown key '{key}'{did_you_mean(key, keys)}")
    for key in keys:
        if key not in values:
            raise UserError(f"{path}: key '{key}' is missing; a model needs {', '.join(keys)}")
    for key in _TEXTS:
        if not isinstance(values[key], str):
            raise UserError(f"{path}: {key} = {values[key]!r}, expected text in quotes")
    if values["accounting"] not in ACCOUNTINGS:
        raise UserError(
            f"{path}: accounting = '{values['accounting']}', allowed: {', '.join(ACCOUNTINGS)}"
        )
    numbers = {key: _whole_number(values[key], key, path) for key in (*_LAYERS, *_DIMENSIONS)}
    _check_layers(numbers, path)
    title, source, accounting = (values[key] for key in _TEXTS)
    return Model(path.stem, path, title, source, accounting, **numbers)
