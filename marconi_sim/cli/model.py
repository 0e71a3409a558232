"""What `marconi-sim list models` and `marconi-sim show model` say about a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marconi_sim.base.catalogue import origin
from marconi_sim.base.units import format_bytes
from marconi_sim.model import ExactModel, Model, PaperModel
from marconi_sim.model.vllm import block_tokens, groups

if TYPE_CHECKING:
    from rich.table import Table

LENGTHS = (1_000, 8_000, 64_000, 512_000)  # tokens
_KINDS = {"attention": "attention", "ssm": "recurrent", "mlp": "feed-forward"}


def summary(model: Model) -> dict[str, Any]:
    """Return what a list says of it: what it is, and how many tokens of KV one state costs."""
    unverified = isinstance(model, ExactModel) and bool(model.unverified)
    return {
        "what": model.title + " (partly unverified)" * unverified,
        "tokens_per_state": model.tokens_per_state,
    }


def model_facts(model: Model) -> dict[str, Any]:
    """Return everything as plain values."""
    facts: dict[str, Any] = {
        "name": model.name,
        "title": model.title,
        "source": model.source,
        "accounting": model.accounting,
        **model.numbers(),
        "options": model.options(),
        "flops": {str(length): model.flops_by_layer(length) for length in LENGTHS},
    }
    if isinstance(model, ExactModel):
        facts |= {
            "layers": model.describe(),
            "kv_bytes_per_token_and_layer": model.kv_bytes_of_layer,
            "state_bytes_per_layer": model.state_bytes_of_layer,
            "vllm_block_tokens": block_tokens(model),
            "vllm_groups": groups(model)._asdict(),
            "unverified": list(model.unverified),
            "unverified_because": model.unverified_because,
            "notes": list(model.notes),
        }
    return facts


def _bytes(count: int) -> str:
    return f"{format_bytes(count)} ({count:,} bytes)"


def _each(count: int, layers: int) -> str:
    return f"; {format_bytes(count)} in each of {layers} layers" if layers > 1 else ""


def _structure(model: Model) -> dict[str, str]:
    if isinstance(model, ExactModel):
        return {"hidden size": f"{model.hidden_size:,}", **model.describe()}
    assert isinstance(model, PaperModel)
    return {key.replace("_", " "): f"{value:,}" for key, value in model.options().items()}


def _doubts(model: Model) -> dict[str, str]:
    if not isinstance(model, ExactModel):
        return {}
    found = {}
    if model.unverified:
        keys = ", ".join(model.unverified)
        found["[yellow]unverified[/]"] = f"[yellow]{keys}[/] ({model.unverified_because})"
    if model.notes:
        found["[yellow]note[/]"] = " ".join(model.notes)
    return found


def _costs(model: Model) -> dict[str, str]:
    kv, state = _bytes(model.kv_bytes), _bytes(model.state_bytes)
    if isinstance(model, ExactModel) and model.kv_bytes:
        kv += _each(model.kv_bytes_of_layer, model.layers()["attention"])
    if model.tokens_per_state is not None:
        state += f" = KV of {model.tokens_per_state:,.0f} tokens"
    if isinstance(model, ExactModel) and model.state_bytes:
        state += _each(model.state_bytes_of_layer, model.layers()["ssm"])
    if isinstance(model, ExactModel) and model.storage.tensor_parallel > 1:
        each = f", on each of {model.storage.tensor_parallel} GPUs"
        kv, state = kv + each, state + each
    return {"KV per token": kv, "one recurrent state": state if model.state_bytes else "none"}


def _vllm(model: ExactModel) -> str:
    block = block_tokens(model)
    if block is None:
        return "no attention layers, so no blocks"
    of = groups(model)
    text = f"blocks of {block:,} tokens before the backend's rounding"
    if of.recurrent:
        text += f"; {of.attention} + {of.recurrent} groups of attention and recurrent layers"
    return text


def _grid(rows: dict[str, str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for key, value in rows.items():
        grid.add_row(key, value)
    return grid


def _tera(count: float) -> str:
    return f"{count / 1e12:,.0f}" if count >= 1e15 else f"{count / 1e12:.4g}"


def _flops(model: Model) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        title="FLOPs of a prefill (10^12)",
        title_justify="left",
    )
    table.add_column("tokens", justify="right")
    for kind in _KINDS.values():
        table.add_column(kind, justify="right")
    table.add_column("all", justify="right")
    for length in LENGTHS:
        parts = model.flops_by_layer(length)
        total = sum(parts.values())
        table.add_row(
            f"{length:,}",
            *(f"{_tera(parts[k])} {parts[k] / total:4.0%}" if parts[k] else "-" for k in _KINDS),
            _tera(total),
        )
    return table


def print_model(model: Model) -> None:
    """Print what it is, what it costs, and where the numbers come from."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"[bold]{model.title}[/]")
    console.print(_grid({"source": model.source, "file": origin(model.path), **_doubts(model)}))
    console.print()
    stored = {}
    if isinstance(model, ExactModel):
        stored["options"] = ", ".join(f"{key}={value}" for key, value in model.options().items())
    console.print(_grid({"accounting": model.accounting, **_structure(model), **stored}))
    console.print()
    costs = _costs(model)
    if isinstance(model, ExactModel):
        costs["vLLM"] = _vllm(model)
    console.print(_grid(costs))
    console.print()
    console.print(_flops(model))
