"""What follows from a model's shape alone: bytes of a cached sequence, FLOPs saved per byte, FLOPs by kind of layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marconi_sim.figures.page import Page
from marconi_sim.figures.style import GREY, looks
from marconi_sim.model import Model

BLOCKS = (16, 32, 128)  # tokens
_LONGEST = 30_000  # tokens
_MARKED = 10_000
_KINDS = {"attention": "attention", "ssm": "SSM", "mlp": "MLP"}


def _lengths(first: int) -> NDArray[np.float64]:
    return np.linspace(first, _LONGEST, 60)


def sequence_bytes(model: Model, tokens: float, block: int | None) -> float:
    """Return the bytes of one cached sequence: its KV, and a state per full block, or one state if `block` is None."""
    states = 1 if block is None else tokens // block
    return model.kv_bytes * tokens + model.state_bytes * states


def efficiency(model: Model, tokens: float) -> float:
    """Return the FLOPs that reusing a sequence saves, per byte of its KV and of one state."""
    return sum(model.flops_by_layer(tokens).values()) / sequence_bytes(model, tokens, None)


def draw_sequence_bytes(page: Page, models: Sequence[Model]) -> None:
    """Draw the bytes of one sequence against its length: with a state per block, with one state, without states."""
    (axes,) = page.panels
    series = [
        (model, block)
        for model in models
        for block in ((*BLOCKS, None) if model.state_bytes else (None,))
    ]
    tokens = _lengths(1000)
    for (model, block), look in zip(series, looks(map(str, series)).values(), strict=True):
        states = f"a state per {block} tokens" if block else "one state"
        at = sequence_bytes(model, _MARKED, block) / 1e9
        axes.plot(
            tokens / 1000, [sequence_bytes(model, length, block) / 1e9 for length in tokens],
            color=look.colour, linestyle=look.line, marker=look.marker, markevery=(5, 10),
            label=f"{model.name}, {states if model.state_bytes else 'KV only'}: {at:.3g} GB",
        )  # fmt: skip
    axes.axvline(_MARKED / 1000, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_ylim(0.08, 70)
    axes.set_xlim(0, _LONGEST / 1000)
    axes.set_xlabel("tokens of the sequence, thousands")
    axes.set_ylabel("bytes of its KV and states,\nGB (logarithmic)")
    axes.annotate(
        "numbers in the legend: here", (_MARKED / 1000, 0.1), (4, 0), textcoords="offset points",
        fontsize=9, color=GREY,
    )  # fmt: skip
    page.legend(2)


def draw_efficiency(page: Page, models: Sequence[Model]) -> None:
    """Draw the FLOPs saved per byte cached against the length."""
    (axes,) = page.panels
    tokens = _lengths(100)
    for model, look in zip(models, looks(model.name for model in models).values(), strict=True):
        axes.plot(
            tokens / 1000, [efficiency(model, length) / 1000 for length in tokens],
            color=look.colour, linestyle=look.line, marker=look.marker, markevery=(5, 10), label=model.name,
        )  # fmt: skip
    axes.set_xlim(0, _LONGEST / 1000)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens of the sequence, thousands")
    axes.set_ylabel("FLOPs saved per byte\nof KV and state, thousands")
    page.legend()


def draw_flops(page: Page, models: Sequence[Model]) -> None:
    """Draw the FLOPs of a prefill by kind of layer against its length, one panel per model."""
    tokens = _lengths(0)
    styles = looks(_KINDS)
    for axes, model in zip(page.panels, models, strict=True):
        parts = {kind: [model.flops_by_layer(n)[kind] / 1e12 for n in tokens] for kind in _KINDS}
        for kind, name in _KINDS.items():
            look = styles[kind]
            axes.plot(
                tokens / 1000, parts[kind], color=look.colour, linestyle=look.line,
                marker=look.marker, markevery=(5, 10), label=f"{name} ({model.layers()[kind]} layers)",
            )  # fmt: skip
        axes.set_xlim(0, _LONGEST / 1000)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tokens of the prefill, thousands")
        if len(page.panels) > 1:
            axes.set_title(model.name)
    page.panels[0].set_ylabel("FLOPs of the prefill, trillions")
    page.legend()
