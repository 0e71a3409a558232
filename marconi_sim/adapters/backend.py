"""The one interface to a model: prefill some tokens, from nothing or from a restored prefix.

A prefix of p tokens is restored from two things that are kept apart: the KV of its p tokens, which can be cut and
joined anywhere, and the recurrent state after exactly p tokens, which cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from marconi_sim.base.errors import UsageError, did_you_mean

DTYPES = ("float64", "float32", "bfloat16", "float16")

# Keys and values of every attention layer in turn, each (1, heads, tokens, width). A layer with latent attention (MLA)
# has what its cache holds: one head, with the latent as keys and the rotary part as values.
KV = tuple[Tensor, ...]

# The states of every recurrent layer in turn after one and the same token: its last convolution inputs
# (1, channels, columns), then its recurrent state (1, heads, ...), where the layer has one.
State = tuple[Tensor, ...]


class Prefilled(NamedTuple):
    """What a prefill of the tokens [start, end) leaves. Every tensor owns its memory.

    Attributes:
        logits: cut or end -> (vocabulary,), of the last of that many tokens.
        kv: of the tokens [start, end).
        states: cut -> the state after exactly that many tokens.
    """

    logits: dict[int, Tensor]
    kv: KV
    states: dict[int, State]

    @property
    def last_logits(self) -> Tensor:
        """(vocabulary,), of the last token."""
        return self.logits[max(self.logits)]


class Backend(Protocol):
    """A model that can continue a prefill.

    Attributes:
        name: what it is, for reports.
        vocabulary: token ids are from [0, vocabulary).
        device: where its weights are, and the KV and states it returns.
        config: the model's configuration in Hugging Face's layout.
        random_weights: whether its weights are drawn at random; if not they are a checkpoint's.
    """

    name: str
    vocabulary: int
    device: torch.device
    config: dict[str, Any]
    random_weights: bool

    @property
    def storage(self) -> Mapping[str, str]:
        """How KV and states are stored, as options of the accounting `exact`.

        `kv_dtype`, `conv_dtype` and `state_dtype` as torch names them, `conv_columns` "kernel-1" or "kernel".
        """
        ...

    def prefill(
        self, tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
    ) -> Prefilled:
        """Prefill the tokens at positions [start, end), end = start + len(tokens).

        Nothing that is passed in is changed, and nothing that is returned shares memory with it.

        Args:
            tokens: (n,), int64, n >= 1, on any device.
            start: tokens of the restored prefix; 0 for none.
            kv: of the tokens [0, start); None exactly if start is 0.
            state: after `start` tokens; None exactly if start is 0.
            cuts: positions in (start, end], ascending, whose states are wanted.

        Raises:
            ValueError: arguments that contradict each other.
        """
        ...


def find_device(name: str) -> torch.device:
    """Return a device by name: "cpu", "cuda", "cuda:1" ...

    Raises:
        UsageError: an unknown one, or a GPU that is not there.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device '{name}': unknown, expected cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device '{name}': not supported, expected cpu, cuda or cuda:N")
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= gpus:
        raise UsageError(
            f"device '{name}': torch {torch.__version__} finds {gpus} GPUs here; use cpu"
        )
    return device


def find_dtype(name: str) -> torch.dtype:
    """Return a dtype of weights by name.

    Raises:
        UsageError: one that is not in `DTYPES`.
    """
    if name not in DTYPES:
        raise UsageError(f"dtype '{name}': unknown{did_you_mean(name, DTYPES)}")
    return getattr(torch, name)


def check_arguments(
    tokens: Tensor, start: int, kv: KV | None, state: State | None, cuts: Sequence[int]
) -> int:
    """Return the end of a prefill.

    Raises:
        ValueError: the arguments contradict each other (`Backend.prefill` says how they belong together).
    """
    if tokens.dim() != 1 or tokens.dtype != torch.int64 or not len(tokens):
        raise ValueError(
            f"tokens: {tuple(tokens.shape)} of {tokens.dtype}, expected (n,) of torch.int64, n >= 1"
        )
    if start < 0 or (start == 0) != (kv is None) or (start == 0) != (state is None):
        raise ValueError(f"start = {start}: a prefix needs its KV and its state, no prefix neither")
    lengths = {tensor.shape[-2] for tensor in kv or ()}
    if lengths - {start}:
        raise ValueError(f"kv: of {sorted(lengths)} tokens, expected {start}")
    end = start + len(tokens)
    if list(cuts) != sorted(set(cuts)) or not all(start < cut <= end for cut in cuts):
        raise ValueError(f"cuts: {list(cuts)}, expected ascending positions in ({start}, {end}]")
    return end


def slice_kv(kv: KV, start: int, end: int) -> KV:
    """Return a copy of the tokens [start, end) of some KV; positions count from its first token."""
    return tuple(
        tensor[..., start:end, :].clone(memory_format=torch.contiguous_format) for tensor in kv
    )


def join_kv(pieces: Sequence[KV]) -> KV:
    """Return consecutive pieces of KV as one, copied."""
    return tuple(torch.cat(tensors, dim=-2) for tensors in zip(*pieces, strict=True))


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes that tensors hold."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Footprint(NamedTuple):
    """What a backend's tensors cost, in bytes."""

    kv_bytes_per_token: int
    state_bytes: int


def footprint(backend: Backend) -> Footprint:
    """Measure what a backend returns, on a prefill of one token."""
    token = torch.zeros(1, dtype=torch.int64)
    prefilled = backend.prefill(token, 0, None, None, (1,))
    return Footprint(nbytes(prefilled.kv), nbytes(prefilled.states[1]))
