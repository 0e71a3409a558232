"""The accounting `exact`: layers, heads, dtypes and convolutions as they are in the real model.

    title = "Qwen3.5-4B"
    source = "..."
    accounting = "exact"
    unverified = ["hidden_size", "mlp.size"]    # may be left out: keys whose values nobody has checked
    unverified_because = "from memory"          # goes with it
    hidden_size = 2560

    [attention]                                 # or [latent_attention]
    layers = 8
    query_heads = 16
    kv_heads = 4
    head_dim = 256
    output_gate = true

    [gated_deltanet]                            # or another key of TABLES
    layers = 24
    ...

    [mlp]                                       # and, or, [moe]
    layers = 32
    size = 9216

The keys of a table are the attributes of its class in `marconi_sim.model.layers` and `marconi_sim.model.recurrent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from marconi_sim.base.errors import UserError
from marconi_sim.base.toml_document import Document, Table
from marconi_sim.base.units import counted
from marconi_sim.model.base import KINDS, Flops, Model, check_cacheable
from marconi_sim.model.layers import MLP, Attention, LatentAttention, Layers, MoE
from marconi_sim.model.paper import LARGEST
from marconi_sim.model.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Recurrent,
    ShortConv,
)
from marconi_sim.model.storage import (
    STORAGE_OPTIONS,
    Storage,
    check_storage,
    check_storage_option,
)

TABLES: dict[str, type[Layers]] = {
    "attention": Attention,
    "latent_attention": LatentAttention,
    "mamba1": Mamba1,
    "mamba2": Mamba2,
    "gated_deltanet": GatedDeltaNet,
    "kda": KimiDeltaAttention,
    "lightning": LightningAttention,
    "short_conv": ShortConv,
    "mlp": MLP,
    "moe": MoE,
}
_NAMES = {kind: name for name, kind in TABLES.items()}


@dataclass(frozen=True)
class ExactModel(Model):
    """A model as its configuration says.

    Attributes:
        hidden_size: elements of a token between layers.
        parts: its layers; at most one kind of attention and one of recurrent layers.
        storage: how KV and states are stored.
        unverified: `key = value` of what nobody has checked, and why in `unverified_because`.
        notes: what a reader of the model's file had to assume or leave out, a sentence each.
    """

    hidden_size: int
    parts: tuple[Layers, ...]
    storage: Storage = field(default_factory=Storage)
    unverified: tuple[str, ...] = ()
    unverified_because: str = ""
    notes: tuple[str, ...] = ()
    accounting: ClassVar[str] = "exact"

    @property
    def attention(self) -> Attention | LatentAttention | None:
        """Its attention layers."""
        found = [part for part in self.parts if isinstance(part, Attention | LatentAttention)]
        return found[0] if found else None

    @property
    def recurrent(self) -> Recurrent | None:
        """Its recurrent layers."""
        found = [part for part in self.parts if isinstance(part, Recurrent)]
        return found[0] if found else None

    @property
    def kv_bytes_of_layer(self) -> int:
        """Bytes of KV per token in one attention layer."""
        return self.attention.kv_bytes(self.storage) if self.attention else 0

    @property
    def state_bytes_of_layer(self) -> int:
        """Bytes of the state of one recurrent layer, its convolution included."""
        return self.recurrent.state_bytes(self.storage) if self.recurrent else 0

    @property
    def kv_bytes(self) -> int:
        return self.layers()["attention"] * self.kv_bytes_of_layer

    @property
    def state_bytes(self) -> int:
        return self.layers()["ssm"] * self.state_bytes_of_layer

    def layers(self) -> dict[str, int]:
        return {kind: sum(p.layers for p in self.parts if p.kind == kind) for kind in KINDS}

    def dimensions(self) -> dict[str, int | None]:
        return {
            "model_dimension": self.hidden_size,
            "state_dimension": self.recurrent.state_dimension if self.recurrent else None,
        }

    def flops_terms(self) -> dict[str, Flops]:
        """Return the FLOPs by kind of layer; of the whole model, also where bytes are those of one GPU."""
        found = {}
        for kind in KINDS:
            each = [(p.layers, p.flops(self.hidden_size)) for p in self.parts if p.kind == kind]
            found[kind] = Flops(
                sum(layers * flops.linear for layers, flops in each),
                sum(layers * flops.quadratic for layers, flops in each),
            )
        return found

    def options(self) -> dict[str, Any]:
        """Return the options that have an effect on this model."""
        recurrent, experts = self.recurrent, self._experts()
        state = recurrent is not None and recurrent.has_state
        conv = recurrent is not None and recurrent.has_conv
        effective = {
            "kv_dtype": self.attention is not None,
            "state_dtype": state,
            "conv_dtype": conv,
            "conv_columns": conv,
            "tensor_parallel": True,
            "draft_tokens": conv,
        }
        found = {key: getattr(self.storage, key) for key, has in effective.items() if has}
        return {**found, "active_experts": experts.active_experts} if experts else found

    def with_options(self, changes: Mapping[str, Any]) -> Self:
        place = f"model '{self.name}'"
        stored = {key: value for key, value in changes.items() if key in STORAGE_OPTIONS}
        for key, value in stored.items():
            check_storage_option(key, value, place)
        parts = self.parts
        if "active_experts" in changes:
            active = changes["active_experts"]
            parts = tuple(
                replace(part, active_experts=active) if isinstance(part, MoE) else part
                for part in parts
            )
        changed = replace(self, storage=replace(self.storage, **stored), parts=parts)
        changed.check(place)
        return changed

    def check(self, place: str) -> None:
        """Raise if its options do not go together or its heads cannot be divided.

        Raises:
            UserError: says why.
        """
        check_storage(self.storage, place)
        try:
            for part in self.parts:
                if isinstance(part, MoE):
                    _check_active(part.active_experts, part.experts)
                part.kv_bytes(self.storage)
                part.state_bytes(self.storage)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        check_cacheable(self, place)

    def _experts(self) -> MoE | None:
        return next((part for part in self.parts if isinstance(part, MoE)), None)

    def describe(self) -> dict[str, str]:
        """Return its tables, each with its keys in words."""
        return {
            _NAMES[type(part)].replace("_", " "): ", ".join(
                word for one in fields(part) if (word := _word(part, one))
            )
            for part in self.parts
        }


def _word(part: Layers, one: Field[Any]) -> str:
    value = getattr(part, one.name)
    if value == one.default:
        return ""
    name = one.name.replace("_", " ")
    if type(value) is bool:
        return name if value else f"not {name}"
    return counted(value, "layer") if name == "layers" else f"{name} {value:,}"


def _check_active(value: Any, experts: int) -> None:
    if type(value) is not int or not 1 <= value <= experts:
        raise UserError(f"active_experts = {value!r}, expected a whole number from 1 to {experts}")


def _read_part(table: Table, kind: type[Layers]) -> Layers:
    known = fields(kind)
    table.check_keys(one.name for one in known)
    values: dict[str, Any] = {}
    for one in known:
        if one.name not in table.values and one.default is not MISSING:
            continue
        is_flag = type(one.default) is bool
        value = table.take(one.name, bool if is_flag else int)
        low = 0 if one.default == 0 and not is_flag else 1
        if not is_flag and not low <= value <= LARGEST:
            raise UserError(
                f"{table.place(one.name)}: {one.name} = {value!r}, expected a whole number from {low} to {LARGEST}"
            )
        values[one.name] = value
    return kind(**values)


def _read_unverified(document: Document) -> dict[str, Any]:
    """Return the keys under `unverified` with their values, and why they are there."""
    if "unverified" not in document.values:
        return {}
    found = []
    for key in document.take("unverified", list):
        table, _, name = str(key).rpartition(".")
        values = document.values.get(table, {}) if table else document.values
        if not isinstance(values, dict) or name not in values:
            raise UserError(
                f"{document.place('unverified')}: unverified: no key '{key}' in this file"
            )
        found.append(f"{key} = {values[name]}")
    why = document.take("unverified_because", str)
    return {"unverified": tuple(found), "unverified_because": why}


def read_exact_model(document: Document) -> ExactModel:
    """Read a model of the accounting `exact`.

    Raises:
        UserError: names the line.
    """
    texts = ("title", "source", "accounting")
    optional = ("unverified", "unverified_because")
    document.check_keys((*texts, "hidden_size", *optional, *TABLES))
    title, source = document.take("title", str), document.take("source", str)
    hidden = document.take("hidden_size", int)
    if not 1 <= hidden <= LARGEST:
        raise UserError(
            f"{document.place('hidden_size')}: hidden_size = {hidden}, expected a whole number from 1 to {LARGEST}"
        )
    names = [name for name in TABLES if name in document.values]
    parts = tuple(_read_part(document.table(name), TABLES[name]) for name in names)
    for kind in ("attention", "ssm"):
        same = [name for name in names if TABLES[name].kind == kind]
        if len(same) > 1:
            raise UserError(
                f"{document.place(same[1])}: [{same[1]}] beside [{same[0]}]: a model has one kind of such layers"
            )
    model = ExactModel(
        document.path.stem, document.path, title, source, hidden, parts,
        **_read_unverified(document),
    )  # fmt: skip
    model.check(str(document.path))
    return model
