"""Layers of real models: what one costs in bytes and in FLOPs.

FLOPs are our count: 2 for each multiply-add of a matrix product, a convolution or a scan. Left out is what grows with
the width only (norms, activations, gates, rotary embeddings, softmax), the embedding, and the output head, which a
prefill needs for one token. Recurrences are counted token by token; kernels that work in chunks do more, a constant per
token. Bytes per GPU under tensor parallelism follow vLLM: heads are divided, and repeated where there are fewer heads
than GPUs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from marconi_sim.base.errors import UserError
from marconi_sim.model.base import Flops
from marconi_sim.model.storage import DTYPES, Storage


def divided(count: int, what: str, degree: int, *, repeated: bool = False) -> int:
    """Return how many of `count` heads one of `degree` GPUs holds.

    Args:
        count: heads, groups or channels.
        what: a word for them.
        degree: GPUs that share them.
        repeated: whether each GPU holds one where there are fewer of them than GPUs.

    Raises:
        UserError: they cannot be divided evenly.
    """
    if count % degree == 0:
        return count // degree
    if repeated and degree % count == 0:
        return 1
    raise UserError(
        f"tensor_parallel = {degree}: cannot divide {count} {what};"
        f" give a divisor of {count}{' or a multiple' if repeated else ''}"
    )


@dataclass(frozen=True)
class Layers(ABC):
    """Some equal layers of a model.

    Attributes:
        layers: how many.
        kind: one of `marconi_sim.model.base.KINDS`.
        has_state, has_conv: whether `state_dtype` and the options of the convolution have an effect.
    """

    layers: int
    kind: ClassVar[str]
    has_state: ClassVar[bool] = False
    has_conv: ClassVar[bool] = False

    @abstractmethod
    def flops(self, hidden: int) -> Flops:
        """Return the FLOPs of one layer of a model of hidden size `hidden`."""

    def kv_bytes(self, storage: Storage) -> int:
        """Return the bytes of KV of one token in one layer."""
        return 0

    def state_bytes(self, storage: Storage) -> int:
        """Return the bytes of the state of one layer."""
        return 0


def _causal(per_pair: float) -> Flops:
    """Return the FLOPs of what is done once for each pair of a token and one that it sees: L (L + 1) / 2 pairs."""
    return Flops(per_pair / 2, per_pair / 2)


@dataclass(frozen=True)
class Attention(Layers):
    """Softmax attention with grouped KV heads.

    FLOPs: Q, K, V and output projections; per pair 2 for each element of QK^T and of PV, causal.

    Attributes:
        query_heads, kv_heads, head_dim: of one layer.
        output_gate: a gate of the width of Q, made with it (Qwen3-Next, Qwen3.5).
        input_size: of the projections, where it is not the hidden size (Zamba2 sees the embedding beside it).
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    output_gate: bool = False
    input_size: int | None = None
    kind: ClassVar[str] = "attention"

    def kv_bytes(self, storage: Storage) -> int:
        """2 x KV heads x head dimension x bytes of the dtype."""
        degree = storage.tensor_parallel
        divided(self.query_heads, "query heads", degree)
        heads = divided(self.kv_heads, "KV heads", degree, repeated=True)
        return 2 * heads * self.head_dim * DTYPES[storage.kv_dtype]

    def flops(self, hidden: int) -> Flops:
        width = self.query_heads * self.head_dim
        made = width * (1 + self.output_gate) + 2 * self.kv_heads * self.head_dim
        pairs = _causal(4.0 * width)
        linear = 2.0 * (self.input_size or hidden) * made + 2.0 * width * hidden
        return Flops(linear + pairs.linear, pairs.quadratic)


@dataclass(frozen=True)
class LatentAttention(Layers):
    """Multi-head latent attention (MLA): one compressed KV for all heads, expanded for the prefill.

    FLOPs: projections of Q (through `query_rank` if there is one), compressed KV, its expansion, output; per pair 2 for
    each element of QK^T and of PV, causal. The expansion of a reused prefix has to be done again; it is counted as
    saved (a few per cent of a layer).

    Attributes:
        heads: of Q, and of K and V when expanded.
        kv_rank, rope_dim: elements of a token's KV.
        nope_dim, value_dim: of a head's K without position and of its V.
        query_rank: of the compressed Q.
        output_gate: one number per head (Ling 3.0).
    """

    heads: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None = None
    output_gate: bool = False
    kind: ClassVar[str] = "attention"

    def kv_bytes(self, storage: Storage) -> int:
        """(KV rank + rope dimension) x bytes of the dtype; every GPU holds all of it."""
        divided(self.heads, "query heads", storage.tensor_parallel)
        return (self.kv_rank + self.rope_dim) * DTYPES[storage.kv_dtype]

    def flops(self, hidden: int) -> Flops:
        query = self.heads * (self.nope_dim + self.rope_dim)
        value = self.heads * self.value_dim
        of_query = hidden * query
        if self.query_rank is not None:
            of_query = hidden * self.query_rank + self.query_rank * query
        expanded = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        compressed = hidden * (self.kv_rank + self.rope_dim)
        pairs = _causal(2.0 * (query + value))
        gate = self.output_gate * hidden * self.heads
        linear = 2.0 * (of_query + compressed + expanded + gate + value * hidden)
        return Flops(linear + pairs.linear, pairs.quadratic)


@dataclass(frozen=True)
class MLP(Layers):
    """A feed-forward layer.

    Attributes:
        size: of its middle.
        gated: three matrices (SwiGLU); false: two (Nemotron's squared ReLU).
        adapter_rank: of the low-rank part that each use of a shared layer has for itself (Zamba2).
        projected: a square matrix follows (Zamba2).
    """

    size: int
    gated: bool = True
    adapter_rank: int | None = None
    projected: bool = False
    kind: ClassVar[str] = "mlp"

    def flops(self, hidden: int) -> Flops:
        weights = (2 + self.gated) * hidden * self.size + self.projected * hidden**2
        if self.adapter_rank is not None:
            weights += self.adapter_rank * (hidden + (1 + self.gated) * self.size)
        return Flops(2.0 * weights)


@dataclass(frozen=True)
class MoE(Layers):
    """A feed-forward layer of experts: the router, the active experts, and what every token passes.

    Attributes:
        experts, active_experts: how many there are, and how many a token passes.
        size: of an expert's middle.
        shared_size: of the middle of all shared experts together; 0: none.
        latent_size: the experts' input and output, where it is not the hidden size; two projections are added
            (Nemotron 3).
        gated: as of `MLP`.
        shared_gate: one number for the shared experts (Qwen).
    """

    experts: int
    active_experts: int
    size: int
    shared_size: int = 0
    latent_size: int | None = None
    gated: bool = True
    shared_gate: bool = False
    kind: ClassVar[str] = "mlp"

    def flops(self, hidden: int) -> Flops:
        matrices = 2 + self.gated
        width = self.latent_size or hidden
        weights = hidden * (self.experts + self.shared_gate) + matrices * hidden * self.shared_size
        weights += self.active_experts * matrices * width * self.size
        if self.latent_size is not None:
            weights += 2 * hidden * self.latent_size
        return Flops(2.0 * weights)
