"""Shapes of the own hybrid model: layer for layer a Bamba, so that what reads Bamba's configuration reads them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marconi_sim.adapters.backend import DTYPES
from marconi_sim.base.errors import UsageError, did_you_mean

NORM_EPSILON = 1e-5
ROPE_BASE = 10_000.0

_POSITIVE = (
    *("hidden", "attention_heads", "kv_heads", "head_dim"),
    *("ssm_heads", "ssm_head_dim", "ssm_groups", "state_dim"),
    *("ffn", "vocabulary", "chunk"),
)


@dataclass(frozen=True)
class HybridConfig:
    """A hybrid model: each layer is a mixer (Mamba-2 or attention) and a SwiGLU.

    Attributes:
        pattern: one letter a layer: "M" for Mamba-2, "A" for attention.
        hidden: width of the residual stream.
        attention_heads, kv_heads, head_dim: grouped-query attention; rotary embedding on half of each head.
        ssm_heads, ssm_head_dim: their product is a multiple of `hidden` (2 in most models).
        ssm_groups: heads of a group share B and C.
        state_dim: N, columns of the recurrent state of each head (ssm_head_dim, N).
        conv_kernel: of the causal convolution before the recurrence.
        ffn: inner width of the SwiGLU.
        chunk: tokens that the scan takes at once; results depend on it by rounding only.
        dtype: of weights, KV and convolution inputs. Recurrent states are float32, or float64 with it.
        seed: of the random weights.
        weight_scale: standard deviation of the matrices x sqrt(inputs). With 1, activations keep their size from layer
            to layer; with 3, logits and attention scores are so large that a wrong state cannot hide.
    """

    pattern: str
    hidden: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    ssm_heads: int
    ssm_head_dim: int
    ssm_groups: int
    state_dim: int
    ffn: int
    vocabulary: int
    conv_kernel: int = 4
    chunk: int = 64
    dtype: str = "float32"
    seed: int = 0
    weight_scale: float = 1.0

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise UsageError(f"hybrid model: {problem}")

    def _problem(self) -> str | None:
        for key in _POSITIVE:
            if getattr(self, key) < 1:
                return f"{key} = {getattr(self, key)}, expected 1 or more"
        if not self.pattern or set(self.pattern) - set("MA"):
            return f"pattern = {self.pattern!r}, expected a letter per layer, M (Mamba-2) or A (attention)"
        if self.dtype not in DTYPES:
            return f"dtype = {self.dtype!r}{did_you_mean(self.dtype, DTYPES)}"
        if self.conv_kernel < 2:
            return f"conv_kernel = {self.conv_kernel}, expected 2 or more"
        if self.attention_heads % self.kv_heads:
            return f"attention_heads = {self.attention_heads}, expected a multiple of kv_heads = {self.kv_heads}"
        if self.head_dim % 4:
            return f"head_dim = {self.head_dim}, expected a multiple of 4 (pairs of a rotary half)"
        if self.ssm_heads % self.ssm_groups:
            return f"ssm_heads = {self.ssm_heads}, expected a multiple of ssm_groups = {self.ssm_groups}"
        if self.inner % self.hidden:
            return f"ssm_heads x ssm_head_dim = {self.inner}, expected a multiple of hidden = {self.hidden}"
        return None

    @property
    def inner(self) -> int:
        """Channels of the recurrence."""
        return self.ssm_heads * self.ssm_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: the recurrence's input, B and C."""
        return self.inner + 2 * self.ssm_groups * self.state_dim

    @property
    def recurrent_dtype(self) -> str:
        """Dtype of recurrent states."""
        return "float64" if self.dtype == "float64" else "float32"

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight, by the name it has in a Bamba checkpoint."""
        hidden, inner, channels = self.hidden, self.inner, self.conv_channels
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, hidden),
            "model.final_layernorm.weight": (hidden,),
            "lm_head.weight": (self.vocabulary, hidden),
        }
        mamba: dict[str, tuple[int, ...]] = {
            "mamba.in_proj.weight": (inner + channels + self.ssm_heads, hidden),
            "mamba.conv1d.weight": (channels, 1, self.conv_kernel),
            "mamba.conv1d.bias": (channels,),
            "mamba.dt_bias": (self.ssm_heads,),
            "mamba.A_log": (self.ssm_heads,),
            "mamba.D": (self.ssm_heads,),
            "mamba.norm.weight": (inner,),
            "mamba.out_proj.weight": (hidden, inner),
        }
        queries, keys = self.attention_heads * self.head_dim, self.kv_heads * self.head_dim
        attention: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (queries, hidden),
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.o_proj.weight": (hidden, queries),
        }
        every: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "pre_ff_layernorm.weight": (hidden,),
            "feed_forward.gate_proj.weight": (self.ffn, hidden),
            "feed_forward.up_proj.weight": (self.ffn, hidden),
            "feed_forward.down_proj.weight": (hidden, self.ffn),
        }
        for layer, letter in enumerate(self.pattern):
            mixer = mamba if letter == "M" else attention
            for name, shape in (mixer | every).items():
                shapes[f"model.layers.{layer}.{name}"] = shape
        return shapes

    @property
    def parameters(self) -> int:
        """Number of weights, embedding and output matrix included."""
        total = 0
        for shape in self.weight_shapes().values():
            count = 1
            for size in shape:
                count *= size
            total += count
        return total

    def hugging_face(self) -> dict[str, Any]:
        """Return the configuration as the `config.json` of a Bamba."""
        return {
            "model_type": "bamba",
            "architectures": ["BambaForCausalLM"],
            "dtype": self.dtype,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": False,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": len(self.pattern),
            "num_attention_heads": self.attention_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": NORM_EPSILON,
            "attn_layer_indices": [i for i, letter in enumerate(self.pattern) if letter == "A"],
            "mamba_n_heads": self.ssm_heads,
            "mamba_d_head": self.ssm_head_dim,
            "mamba_n_groups": self.ssm_groups,
            "mamba_d_state": self.state_dim,
            "mamba_d_conv": self.conv_kernel,
            "mamba_expand": self.inner // self.hidden,
            "mamba_chunk_size": self.chunk,
            "mamba_conv_bias": True,
            "mamba_proj_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": ROPE_BASE,
                "partial_rotary_factor": 0.5,
            },
        }


PRESETS = {
    # For exactness: float64, wide weights, chunks so short that every kind of boundary is crossed.
    "tiny": HybridConfig(
        pattern="MMAM",
        hidden=32,
        attention_heads=4,
        kv_heads=2,
        head_dim=8,
        ssm_heads=4,
        ssm_head_dim=16,
        ssm_groups=2,
        state_dim=8,
        ffn=48,
        vocabulary=97,
        chunk=8,
        dtype="float64",
        weight_scale=3.0,
    ),
    # For TTFT on a CPU: 6 M parameters beside the embedding and the output matrix.
    "small": HybridConfig(
        pattern="MMAMMMAM",
        hidden=256,
        attention_heads=4,
        kv_heads=2,
        head_dim=64,
        ssm_heads=8,
        ssm_head_dim=64,
        ssm_groups=1,
        state_dim=64,
        ffn=512,
        vocabulary=1024,
    ),
    # For TTFT on a GPU: the shape of Bamba-9B, 9.8 G parameters, 20 GB.
    "bamba-9b": HybridConfig(
        pattern="".join("A" if layer in (9, 18, 27) else "M" for layer in range(32)),
        hidden=4096,
        attention_heads=32,
        kv_heads=8,
        head_dim=128,
        ssm_heads=128,
        ssm_head_dim=64,
        ssm_groups=1,
        state_dim=128,
        ffn=14336,
        vocabulary=128256,
        chunk=128,
        dtype="bfloat16",
    ),
}


def preset(name: str) -> HybridConfig:
    """Return a shape by name.

    Raises:
        UsageError: an unknown name; the message lists them.
    """
    if name not in PRESETS:
        raise UsageError(f"shape '{name}': unknown{did_you_mean(name, PRESETS)}")
    return PRESETS[name]
