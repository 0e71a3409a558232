"""Renew the tables of docs/models.md: python docs/models_page.py [FOLDER/data/real-models.parquet].

The table of models comes from the shipped files, that of the finding from the sweep behind the figures of
the experiment real-models (`marconi-sim figures real-models --out FOLDER`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from marconi_sim.model import ExactModel, load_model, models
from marconi_sim.model.vllm import block_tokens, groups

PAGE = Path(__file__).parent / "models.md"
SWEEP = Path("figures/data/real-models.parquet")
CAPACITIES = {"0.05wss": "5 %", "0.2wss": "20 %"}
AGAINST = "sglang+"
COMPARED = ("vllm+", "vLLM's block", "vllm+, best block", "marconi", "best static alpha")
BLOCKS = "vllm+ of any block"


def registry() -> str:
    """Return the table of shipped models with exact accounting, by what a state costs."""
    lines = [
        "| model | attention + recurrent layers | kind | KV per token, bytes | one state, MB"
        " | a state costs, tokens of KV | vLLM's block, tokens | its groups | unverified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found = [load_model(name) for name in models()]
    exact = [model for model in found if isinstance(model, ExactModel)]
    for model in sorted(exact, key=lambda one: (one.tokens_per_state or 0, one.name)):
        layers, of = model.layers(), groups(model)
        kind = list(model.describe())[1] if model.recurrent else "-"
        keys = ", ".join(f"`{text.split(' = ')[0]}`" for text in model.unverified)
        lines.append(
            f"| `{model.name}` | {layers['attention']} + {layers['ssm']} | {kind} | {model.kv_bytes:,}"
            f" | {model.state_bytes / 1e6:,.4g} | {model.tokens_per_state:,.0f} | {block_tokens(model):,}"
            f" | {of.attention} + {of.recurrent} | {keys} |"
        )
    return "\n".join(lines)


def _own_block(rows: pd.DataFrame) -> pd.Series:
    """Return the token hit rates, by trace, with the block of the sweep that is next to the one that vLLM takes."""
    model = load_model(rows.model.iloc[0])
    rows = rows[rows.label == BLOCKS]
    sizes = rows.param_block_size.astype(int)
    own = block_tokens(model) if isinstance(model, ExactModel) else None
    nearest = min(set(sizes), key=lambda size: abs(size - own)) if own else 0
    return rows[sizes == nearest].set_index("trace").token_hit_rate


def _spread(values: pd.Series) -> str:
    if values.isna().all():
        return "-"
    return f"{values.median():+.1f} ({values.min():+.1f} to {values.max():+.1f})"


def finding(sweep: Path) -> str:
    """Return what each policy gains over sglang+, by model and capacity, over traces."""
    frame = pq.read_table(sweep).to_pandas()
    heads = ["vllm+, block 32", "vllm+, vLLM's own block", *COMPARED[2:]]
    lines = [
        f"| cache | model | a state costs, tokens | {' | '.join(heads)} | best alpha |",
        "|---|---|---|" + "---|" * (len(heads) + 1),
    ]
    for capacity, word in CAPACITIES.items():
        part = frame[frame.capacity == capacity].sort_values("tokens_per_state")
        for model, rows in part.groupby("model", sort=False):
            rates = rows.pivot_table(
                index="trace", columns="label", values="token_hit_rate", aggfunc="first"
            )
            points = 100 * rates.assign(**{"vLLM's block": _own_block(rows)})
            cells = [_spread(points[one] - points[AGAINST]) for one in COMPARED]
            alphas = rows[rows.label == "best static alpha"].param_alpha.astype(float)
            tokens = rows.tokens_per_state.iloc[0]
            lines.append(
                f"| {word} | `{model}` | {tokens:,.0f} | {' | '.join(cells)}"
                f" | {alphas.median():.2g} ({alphas.min():g} to {alphas.max():g}) |"
            )
    return "\n".join(lines)


def renewed(text: str, name: str, table: str) -> str:
    """Return the page with a table between its marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    assert marks.search(text), f"no marks for {name} in {PAGE}"
    return marks.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def main() -> None:
    """Write the page."""
    sweep = Path(sys.argv[1]) if len(sys.argv) > 1 else SWEEP
    text = renewed(PAGE.read_text("utf-8"), "models", registry())
    PAGE.write_text(renewed(text, "finding", finding(sweep)), "utf-8")


if __name__ == "__main__":
    main()
