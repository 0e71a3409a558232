"""The accounting `paper`: the paper's Table 1 and appendix A.

FP16, multi-head attention, no expand factor in the state.

title = "Hybrid 7B of the Marconi paper"
source = "arXiv 2411.19379, Table 1"
accounting = "paper"
attention_layers = 4
ssm_layers = 24
mlp_layers = 28
model_dimension = 4096      # D
state_dimension = 128       # N
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from marconi_sim.base.errors import UserError
from marconi_sim.base.toml_document import Document
from marconi_sim.model.base import KINDS, Flops, Model, check_cacheable

_LAYERS = tuple(f"{kind}_layers" for kind in KINDS)
_DIMENSIONS = ("model_dimension", "state_dimension")
_TEXTS = ("title", "source", "accounting")
LARGEST = 2**20


@dataclass(frozen=True)
class PaperModel(Model):
    """A model as the paper counts it.

    Attributes:
        attention_layers, ssm_layers, mlp_layers: numbers of layers.
        model_dimension: D, elements.
        state_dimension: N, elements.
    """

    attention_layers: int
    ssm_layers: int
    mlp_layers: int
    model_dimension: int
    state_dimension: int
    accounting: ClassVar[str] = "paper"

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV per token: 4 D per attention layer (Table 1, FP16)."""
        return self.attention_layers * 4 * self.model_dimension

    @property
    def state_bytes(self) -> int:
        """Bytes of one checkpoint: 2 D N and the convolution's (2 D + 2 N) channels x 4 x 2 bytes per SSM layer."""
        D, N = self.model_dimension, self.state_dimension
        return self.ssm_layers * (2 * D * N + (2 * D + 2 * N) * 4 * 2)

    def flops_terms(self) -> dict[str, Flops]:
        """Return the FLOPs by kind of layer (Table 1; SSM with 10 L D)."""
        D, N = self.model_dimension, self.state_dimension
        return {
            "attention": Flops(self.attention_layers * 8.0 * D**2, self.attention_layers * 4.0 * D),
            "ssm": Flops(self.ssm_layers * (12.0 * D**2 + 16.0 * D * N + 10.0 * D)),
            "mlp": Flops(self.mlp_layers * 16.0 * D**2),
        }

    def layers(self) -> dict[str, int]:
        return {kind: getattr(self, f"{kind}_layers") for kind in KINDS}

    def dimensions(self) -> dict[str, int | None]:
        return {key: getattr(self, key) for key in _DIMENSIONS}

    def options(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in (*_LAYERS, *_DIMENSIONS)}

    def with_options(self, changes: Mapping[str, Any]) -> Self:
        for key, value in changes.items():
            _check_whole(value, key, f"model '{self.name}'")
        return replace(self, **changes)


def _check_whole(value: Any, key: str, place: str) -> None:
    low = 0 if key in _LAYERS else 1
    if type(value) is not int or not low <= value <= LARGEST:
        raise UserError(
            f"{place}: {key} = {value!r}, expected a whole number from {low} to {LARGEST}"
        )


def read_paper_model(document: Document) -> PaperModel:
    """Read a model of the accounting `paper`.

    Raises:
        UserError: names the line.
    """
    document.check_keys((*_TEXTS, *_LAYERS, *_DIMENSIONS))
    title, source, _ = (document.take(key, str) for key in _TEXTS)
    numbers = {}
    for key in (*_LAYERS, *_DIMENSIONS):
        numbers[key] = document.take(key, int)
        _check_whole(numbers[key], key, document.place(key))
    model = PaperModel(document.path.stem, document.path, title, source, **numbers)
    check_cacheable(model, document.path)
    return model
