"""What every model shape gives, however it counts: bytes of KV, bytes of a state, FLOPs of a prefill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from marconi_sim.base.errors import UsageError, UserError, check_argument, did_you_mean
from marconi_sim.core.shape import Shape

KINDS = ("attention", "ssm", "mlp")  # of layers; ssm: every kind of recurrent layer


class Flops(NamedTuple):
    """FLOPs of a prefill of L tokens from nothing: `linear` L + `quadratic` L^2."""

    linear: float
    quadratic: float = 0.0


@dataclass(frozen=True)
class Model(ABC):
    """A model as a cache sees it.

    Attributes:
        name: the stem of its file; after `vary` also what differs.
        path: its file.
        accounting: how bytes and FLOPs are counted: `paper` or `exact`.
    """

    name: str
    path: Path
    title: str
    source: str
    accounting: ClassVar[str]

    @property
    @abstractmethod
    def kv_bytes(self) -> int:
        """Bytes of KV per token, all attention layers."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of one checkpoint: the states of all recurrent layers, convolutions included."""

    @abstractmethod
    def layers(self) -> dict[str, int]:
        """Return how many layers of each of `KINDS` there are; one that is two things counts twice."""

    @abstractmethod
    def dimensions(self) -> dict[str, int | None]:
        """Return `model_dimension` and `state_dimension`; None where there is no such thing."""

    @abstractmethod
    def flops_terms(self) -> dict[str, Flops]:
        """Return the FLOPs of all layers of each of `KINDS`."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return what `vary` can change, and what it is now."""

    @abstractmethod
    def with_options(self, changes: Mapping[str, Any]) -> Self:
        """Return the model with other values of some of its options, checked, under the same name.

        Raises:
            UserError: a value that is not allowed.
        """

    @property
    def tokens_per_state(self) -> float | None:
        """How many tokens of KV take the bytes of one state; None without attention."""
        return self.state_bytes / self.kv_bytes if self.kv_bytes else None

    def flops_by_layer(self, tokens: float) -> dict[str, float]:
        """Return the FLOPs of a prefill of `tokens` tokens from nothing by kind of layer."""
        return {
            kind: tokens * (terms.linear + terms.quadratic * tokens)
            for kind, terms in self.flops_terms().items()
        }

    def numbers(self) -> dict[str, int | float | None]:
        """Return the columns of a result that tell models apart."""
        return {
            **{f"{kind}_layers": count for kind, count in self.layers().items()},
            **self.dimensions(),
            "kv_bytes_per_token": self.kv_bytes,
            "state_bytes": self.state_bytes,
            "tokens_per_state": self.tokens_per_state,
        }

    @property
    def shape(self) -> Shape:
        """What the kernels need of it."""
        terms = self.flops_terms().values()
        return Shape(
            kv_bytes=self.kv_bytes,
            state_bytes=self.state_bytes,
            flops_linear=float(sum(one.linear for one in terms)),
            flops_quadratic=float(sum(one.quadratic for one in terms)),
        )


def check_cacheable(model: Model, place: str | Path) -> None:
    """Raise if there is nothing that a cache could hold."""
    layers = model.layers()
    if layers["attention"] + layers["ssm"] == 0:
        raise UserError(f"{place}: no attention and no SSM layers, so there is nothing to cache")


def vary(model: Model, changes: Mapping[str, Any]) -> Model:
    """Return the model with other values of its options; its name says what differs.

    The options of a model of the accounting `paper` are its layers and dimensions; those of `exact` how its KV and
    states are stored (`marconi_sim.model.storage`) and `active_experts`.

    Raises:
        UsageError: an unknown option, one without effect on this model, or a value that is not allowed.
    """
    check_argument("model", model, (Model,), "a model, e.g. load_model('qwen3.5-27b')")
    check_argument("changes", changes, (Mapping,), "options by name, e.g. {'kv_dtype': 'fp8'}")
    known = model.options()
    for key in changes:
        if key not in known:
            raise UsageError(f"model '{model.name}': unknown key '{key}'{did_you_mean(key, known)}")
    different = {key: value for key, value in changes.items() if value != known[key]}
    try:
        model.with_options(changes)  # also what is as it was must be allowed: True equals 1
        if not different:
            return model
        text = ", ".join(f"{key}={value}" for key, value in different.items())
        changed = replace(
            model.with_options(different),
            name=f"{model.name}[{text}]",
            title=f"{model.title}, with {text}",
        )
        check_cacheable(changed, f"model '{changed.name}'")
    except UserError as error:
        raise UsageError(str(error)) from error
    return changed
