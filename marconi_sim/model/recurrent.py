"""Recurrent layers: a state of fixed size, and the last inputs of a short convolution before it.

Bytes agree with vLLM's `MambaStateShapeCalculator` (model_executor/layers/mamba/mamba_utils.py) and with the caches of
transformers (tests/test_config_caches.py); FLOPs are our count, as `marconi_sim.model.layers` says.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from marconi_sim.model.base import Flops
from marconi_sim.model.layers import Layers, divided
from marconi_sim.model.storage import DTYPES, Storage


@dataclass(frozen=True)
class Recurrent(Layers):
    """Base of the recurrent layers."""

    kind: ClassVar[str] = "ssm"
    has_state: ClassVar[bool] = True
    has_conv: ClassVar[bool] = True

    @property
    @abstractmethod
    def state_dimension(self) -> int:
        """Elements of the state per channel."""

    @abstractmethod
    def elements(self, degree: int) -> int:
        """Return the elements of the recurrent state that one of `degree` GPUs holds."""

    @abstractmethod
    def channels(self, degree: int) -> int:
        """Return the channels of the convolution that one of `degree` GPUs holds."""

    def _kernel(self) -> int:
        return int(getattr(self, "kernel", 0))

    def state_bytes(self, storage: Storage) -> int:
        """Elements x bytes of the state's dtype + channels x columns x bytes of the convolution's dtype."""
        degree = storage.tensor_parallel
        size = self.elements(degree) * DTYPES[storage.state_dtype]
        if self.has_conv:
            columns = storage.columns(self._kernel())
            size += self.channels(degree) * columns * DTYPES[storage.conv_dtype]
        return size

    def _conv_flops(self) -> float:
        return 2.0 * self._kernel() * self.channels(1)


@dataclass(frozen=True)
class Mamba1(Recurrent):
    """Mamba: the state has N elements per channel.

    FLOPs: input projection (twice the inner size), convolution, projections of dt, B and C, scan (6 per element: dt A,
    decay and input 3, output 2), output projection.

    Attributes:
        inner_size: channels.
        state_dim: N.
        dt_rank: of the projection of dt.
        kernel: of the convolution.
    """

    inner_size: int
    state_dim: int
    dt_rank: int
    kernel: int

    @property
    def state_dimension(self) -> int:
        return self.state_dim

    def elements(self, degree: int) -> int:
        return self.channels(degree) * self.state_dim

    def channels(self, degree: int) -> int:
        return divided(self.inner_size, "channels", degree)

    def flops(self, hidden: int) -> Flops:
        weights = 3 * hidden * self.inner_size
        weights += self.inner_size * (2 * self.dt_rank + 2 * self.state_dim)
        return Flops(2.0 * weights + self._conv_flops() + 6.0 * self.elements(1))


@dataclass(frozen=True)
class Mamba2(Recurrent):
    """Mamba-2: heads x head dimension x N.

    FLOPs: input projection (gate, x, B, C, dt), convolution over x, B and C, scan (5 per element: decay and input 3,
    output 2), output projection. vLLM gives every GPU a group of its own where there are fewer groups than GPUs.

    Attributes:
        heads, head_dim: of x.
        state_dim: N.
        groups: heads of B and C.
        kernel: of the convolution.
    """

    heads: int
    head_dim: int
    state_dim: int
    groups: int
    kernel: int

    @property
    def state_dimension(self) -> int:
        return self.state_dim

    def elements(self, degree: int) -> int:
        return divided(self.heads, "state heads", degree) * self.head_dim * self.state_dim

    def channels(self, degree: int) -> int:
        inner = divided(self.heads, "state heads", degree) * self.head_dim
        return inner + 2 * divided(self.groups, "groups", degree, repeated=True) * self.state_dim

    def flops(self, hidden: int) -> Flops:
        inner = self.heads * self.head_dim
        made = inner + self.channels(1) + self.heads
        weights = hidden * made + inner * hidden
        return Flops(2.0 * weights + self._conv_flops() + 5.0 * self.elements(1))


@dataclass(frozen=True)
class GatedDeltaNet(Recurrent):
    """Gated delta rule (Qwen3-Next, Qwen3.5, OLMo Hybrid): value heads x key dimension x value dimension.

    FLOPs: projections of Q, K, V, gate, decay and step, convolution over Q, K and V, scan (7 per element: decay 1,
    S k 2, update 2, S q 2), output projection.

    Attributes:
        key_heads, key_dim: of Q and K.
        value_heads, value_dim: of V.
        kernel: of the convolution.
    """

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @property
    def state_dimension(self) -> int:
        return self.key_dim

    def elements(self, degree: int) -> int:
        return divided(self.value_heads, "value heads", degree) * self.key_dim * self.value_dim

    def channels(self, degree: int) -> int:
        keys = divided(self.key_heads, "key heads", degree) * self.key_dim
        return 2 * keys + divided(self.value_heads, "value heads", degree) * self.value_dim

    def flops(self, hidden: int) -> Flops:
        value = self.value_heads * self.value_dim
        made = self.channels(1) + value + 2 * self.value_heads
        weights = hidden * made + value * hidden
        return Flops(2.0 * weights + self._conv_flops() + 7.0 * self.elements(1))


@dataclass(frozen=True)
class KimiDeltaAttention(Recurrent):
    """Kimi delta attention (KDA; Kimi Linear, Ling 3.0): heads x d x d, a decay per channel.

    FLOPs: projections of Q, K, V, decay, output gate and step, convolution over Q, K and V, scan (7 per element, as the
    gated delta rule), output projection.

    Attributes:
        heads, head_dim: of Q, K and V.
        kernel: of the convolution.
        gate_rank: of the projections of decay and output gate; without it they are full matrices.
    """

    heads: int
    head_dim: int
    kernel: int
    gate_rank: int | None = None

    @property
    def state_dimension(self) -> int:
        return self.head_dim

    def elements(self, degree: int) -> int:
        return divided(self.heads, "state heads", degree) * self.head_dim**2

    def channels(self, degree: int) -> int:
        return 3 * divided(self.heads, "state heads", degree) * self.head_dim

    def flops(self, hidden: int) -> Flops:
        width = self.heads * self.head_dim
        gate = hidden * width
        if self.gate_rank is not None:
            gate = self.gate_rank * (hidden + width)
        weights = 3 * hidden * width + 2 * gate + hidden * self.heads + width * hidden
        return Flops(2.0 * weights + self._conv_flops() + 7.0 * self.elements(1))


@dataclass(frozen=True)
class LightningAttention(Recurrent):
    """Linear attention with a fixed decay (MiniMax-Text-01): heads x d x d, no convolution.

    FLOPs: projections of Q, K, V and output gate, scan (5 per element: decay and input 3, output 2), output projection.

    Attributes:
        heads, head_dim: of Q, K and V.
    """

    heads: int
    head_dim: int
    has_conv: ClassVar[bool] = False

    @property
    def state_dimension(self) -> int:
        return self.head_dim

    def elements(self, degree: int) -> int:
        return divided(self.heads, "state heads", degree) * self.head_dim**2

    def channels(self, degree: int) -> int:
        return 0

    def flops(self, hidden: int) -> Flops:
        weights = 5 * hidden * self.heads * self.head_dim
        return Flops(2.0 * weights + 5.0 * self.elements(1))


@dataclass(frozen=True)
class ShortConv(Recurrent):
    """A gated short convolution (LFM2): its last inputs are the whole state.

    FLOPs: input projection (two gates and the input), convolution, output projection.

    Attributes:
        width: channels.
        kernel: of the convolution.
    """

    width: int
    kernel: int
    has_state: ClassVar[bool] = False

    @property
    def state_dimension(self) -> int:
        return self.kernel

    def elements(self, degree: int) -> int:
        return 0

    def channels(self, degree: int) -> int:
        return divided(self.width, "channels", degree)

    def flops(self, hidden: int) -> Flops:
        return Flops(2.0 * 4 * hidden * self.width + self._conv_flops())
