"""An own hybrid model in plain torch: Mamba-2, attention with grouped queries, SwiGLU; on a CPU or a GPU, of any shape.

It is the model that TTFT is measured on where nothing can be downloaded: weights are random by seed, timing does not
depend on them. States at any positions come out of the one pass over the tokens: a checkpoint costs no pass more. The
layers are Bamba's, weights have the names of its checkpoints, and give the same logits as in transformers' Bamba.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from marconi_sim.adapters.backend import KV, Prefilled, State, check_arguments, find_device
from marconi_sim.adapters.hybrid_config import NORM_EPSILON, ROPE_BASE, HybridConfig
from marconi_sim.adapters.scan import scan

_Layer = Mapping[str, Tensor]  # weights by their names without the layer

_QUERIES_AT_ONCE = 256

# The range of step sizes that a Mamba-2 is initialised to: heads remember from a few to thousands of tokens.
_STEP_RANGE = (1e-3, 1e-1)
_DECAY_RANGE = (1.0, 16.0)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, NORM_EPSILON)


def _rotations(start: int, end: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (end - start, width) of the angles at positions [start, end)."""
    exact = {"dtype": torch.float64, "device": like.device}
    frequencies = ROPE_BASE ** (-torch.arange(0, width, 2, **exact) / width)
    angles = torch.outer(torch.arange(start, end, **exact), frequencies).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotate(x: Tensor, rotations: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the first half of each head (..., tokens, head_dim) by its position; returns a new, contiguous tensor."""
    cosines, sines = rotations
    turned, rest = x.chunk(2, dim=-1)
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cosines + torch.cat([-second, first], dim=-1) * sines
    return torch.cat([turned, rest], dim=-1).contiguous()


def attend_at_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of the last tokens, by a kernel that needs no mask in memory: what a GPU has.

    Args:
        q: (1, heads, new tokens, head_dim), the last of the tokens of k and v.
        k: (1, KV heads, tokens, head_dim).
        v: as k.

    Returns:
        (1, heads, new tokens, head_dim).
    """
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for tensor in (k, v))
    mask = causal_lower_right(q.shape[-2], k.shape[-2])
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Do as `attend_at_once`, a block of queries at a time with a mask of its own: what is fast on a CPU."""
    new, tokens = q.shape[-2], k.shape[-2]
    blocks = []
    for start in range(0, new, _QUERIES_AT_ONCE):
        end = min(start + _QUERIES_AT_ONCE, new)
        seen = tokens - new + end
        mask = torch.ones(end - start, seen, dtype=torch.bool).tril(seen - (end - start))
        block = q[..., start:end, :], k[..., :seen, :], v[..., :seen, :]
        blocks.append(
            functional.scaled_dot_product_attention(*block, attn_mask=mask, enable_gqa=True)
        )
    return torch.cat(blocks, dim=-2)


def _convolve(columns: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Causal convolution of each channel.

    Args:
        columns: (kernel - 1 + tokens, channels), those of the tokens before included.
        weight: (channels, 1, kernel).
        bias: (channels,).

    Returns:
        (tokens, channels). A sum of shifted products: four times as fast on a CPU as torch's grouped convolution.
    """
    kernel = weight.shape[-1]
    tokens = len(columns) - kernel + 1
    taps = weight[:, 0].T.to(columns.dtype).contiguous()
    out = torch.addcmul(bias.to(columns.dtype), columns[:tokens], taps[0])
    for tap in range(1, kernel):
        out.addcmul_(columns[tap : tap + tokens], taps[tap])
    return out


def random_weights(config: HybridConfig, device: torch.device) -> dict[str, Tensor]:
    """Draw weights: matrices normal, of a standard deviation that keeps the size of what passes through them."""
    generator = torch.Generator(device).manual_seed(config.seed)
    dtype = getattr(torch, config.dtype)

    def between(low: float, high: float, shape: tuple[int, ...]) -> Tensor:
        uniform = torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
        return (uniform * (math.log(high) - math.log(low)) + math.log(low)).exp()

    weights = {}
    for name, shape in config.weight_shapes().items():
        if name.endswith("A_log"):
            value = between(*_DECAY_RANGE, shape).log()
        elif name.endswith("dt_bias"):
            value = between(*_STEP_RANGE, shape).expm1().log()  # softplus gives the step back
        elif name.endswith("mamba.D") or "norm" in name:
            value = torch.ones(shape, device=device)
        elif name.endswith("bias"):
            value = torch.zeros(shape, device=device)
        else:
            deviation = config.weight_scale / math.sqrt(shape[-1])
            value = torch.empty(shape, device=device, dtype=dtype)
            value.normal_(0.0, deviation, generator=generator)
        weights[name] = value.to(dtype)
    return weights


class HybridModel:
    """The backend of the own model.

    Args:
        config: its shape.
        device: as `find_device` takes it.
        weights: by the names of `HybridConfig.weight_shapes`; random ones by default.

    Raises:
        UserError: a device that is not there.
    """

    def __init__(
        self,
        config: HybridConfig,
        device: str = "cpu",
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.shape = config
        self.name = f"own hybrid model {config.pattern}"
        self.vocabulary = config.vocabulary
        self.device = find_device(device)
        self.config: dict[str, Any] = config.hugging_face()
        self.storage = {
            "kv_dtype": config.dtype,
            "conv_dtype": config.dtype,
            "state_dtype": config.recurrent_dtype,
            "conv_columns": "kernel-1",
        }
        self.random_weights = weights is None
        weights = random_weights(config, self.device) if weights is None else weights
        self._weights = {name: weights[name].to(self.device) for name in config.weight_shapes()}
        prefixes = [f"model.layers.{index}." for index in range(len(config.pattern))]
        self._layers = [
            {
                name.removeprefix(prefix): weight
                for name, weight in self._weights.items()
                if name.startswith(prefix)
            }
            for prefix in prefixes
        ]
        self._recurrent = getattr(torch, config.recurrent_dtype)

    def _attention(
        self, layer: _Layer, x: Tensor, past: KV | None, rotations: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, KV]:
        q, k, v = (
            functional.linear(x, layer[f"self_attn.{which}_proj.weight"])
            .view(1, len(x), -1, self.shape.head_dim)
            .transpose(1, 2)
            for which in "qkv"
        )
        q, k, v = _rotate(q, rotations), _rotate(k, rotations), v.contiguous()
        keys, values = k, v
        if past is not None:
            keys, values = (torch.cat(pair, dim=-2) for pair in zip(past, (k, v), strict=True))
        attend = attend_at_once if x.is_cuda else attend_in_blocks
        y = attend(q, keys, values).transpose(1, 2).reshape(len(x), -1)
        return functional.linear(y, layer["self_attn.o_proj.weight"]), (k, v)

    def _mamba(
        self, layer: _Layer, x: Tensor, past: State | None, cuts: Sequence[int]
    ) -> tuple[Tensor, list[State]]:
        """Run a Mamba-2 mixer; `cuts` count from the first token of `x`."""
        shape, exact = self.shape, self._recurrent
        heads, groups, kept = shape.ssm_heads, shape.ssm_groups, shape.conv_kernel - 1
        if past is None:
            conv = x.new_zeros(1, shape.conv_channels, kept)
            state = x.new_zeros(1, heads, shape.ssm_head_dim, shape.state_dim, dtype=exact)
        else:
            conv, state = past
        projected = functional.linear(x, layer["mamba.in_proj.weight"])
        gate, columns, dt = projected.split([shape.inner, shape.conv_channels, heads], dim=-1)
        columns = torch.cat([conv[0].T, columns])
        # Cloned in any case: a single column is contiguous as it is, and would keep all columns alive.
        convs = [
            columns[cut : cut + kept].T[None].clone(memory_format=torch.contiguous_format)
            for cut in cuts
        ]

        mixed = _convolve(
            columns.to(exact), layer["mamba.conv1d.weight"], layer["mamba.conv1d.bias"]
        )
        mixed = functional.silu(mixed, inplace=True)
        widths = [shape.inner, groups * shape.state_dim, groups * shape.state_dim]
        inputs, B, C = mixed.split(widths, dim=-1)
        inputs = inputs.unflatten(-1, (heads, -1))
        y, states = scan(
            inputs,
            functional.softplus(dt.to(exact) + layer["mamba.dt_bias"].to(exact)),
            -layer["mamba.A_log"].to(exact).exp(),
            B.unflatten(-1, (groups, -1)),
            C.unflatten(-1, (groups, -1)),
            state[0],
            cuts,
            shape.chunk,
        )
        y = torch.addcmul(y, inputs, layer["mamba.D"].to(exact)[:, None]).flatten(1)
        y = (y * functional.silu(gate.to(exact))).unflatten(-1, (groups, -1))
        y = functional.rms_norm(y, (y.shape[-1],), eps=NORM_EPSILON).flatten(1)
        out = functional.linear(
            y.to(x.dtype) * layer["mamba.norm.weight"], layer["mamba.out_proj.weight"]
        )
        return out, [(conv, state[None]) for conv, state in zip(convs, states, strict=True)]

    def _feed_forward(self, layer: _Layer, x: Tensor) -> Tensor:
        gate, up, down = (
            layer[f"feed_forward.{which}_proj.weight"] for which in ("gate", "up", "down")
        )
        inner = functional.silu(functional.linear(x, gate), inplace=True)
        return functional.linear(inner.mul_(functional.linear(x, up)), down)

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill the tokens [start, end) (`Backend.prefill`)."""
        end = check_arguments(tokens, start, kv, state, cuts)
        with torch.no_grad():
            return self._prefill(tokens.to(self.device), start, end, kv, state, cuts)

    def _prefill(
        self,
        tokens: Tensor,
        start: int,
        end: int,
        kv: KV | None,
        state: State | None,
        cuts: Sequence[int],
    ) -> Prefilled:
        x = functional.embedding(tokens, self._weights["model.embed_tokens.weight"])
        rotations = _rotations(start, end, self.shape.head_dim // 2, x)
        pasts_kv, pasts_state = iter(kv or ()), iter(state or ())
        new_kv: list[Tensor] = []
        states: dict[int, list[Tensor]] = {cut: [] for cut in cuts}
        for letter, layer in zip(self.shape.pattern, self._layers, strict=True):
            normed = _norm(x, layer["input_layernorm.weight"])
            if letter == "A":
                past = None if kv is None else (next(pasts_kv), next(pasts_kv))
                mixed, own = self._attention(layer, normed, past, rotations)
                new_kv += own
            else:
                past = None if state is None else (next(pasts_state), next(pasts_state))
                mixed, after = self._mamba(layer, normed, past, [cut - start for cut in cuts])
                for cut, tensors in zip(cuts, after, strict=True):
                    states[cut] += tensors
            x = x + mixed
            x = x + self._feed_forward(layer, _norm(x, layer["pre_ff_layernorm.weight"]))
        ends = [*cuts, *([] if cuts and cuts[-1] == end else [end])]
        last = _norm(
            x[[cut - start - 1 for cut in ends]], self._weights["model.final_layernorm.weight"]
        )
        rows = functional.linear(last, self._weights["lm_head.weight"])
        return Prefilled(
            {cut: row.clone() for cut, row in zip(ends, rows, strict=True)},
            tuple(new_kv),
            {cut: tuple(tensors) for cut, tensors in states.items()},
        )
