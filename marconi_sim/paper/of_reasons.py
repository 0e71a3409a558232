"""Numbers that explain: what eviction could win at all, what the FLOP term gives, what the tuner sees."""

from __future__ import annotations

from typing import Any

import pandas as pd

from marconi_sim.figures.cdf import run_of
from marconi_sim.figures.rows import Rows
from marconi_sim.figures.spec import figures_of
from marconi_sim.paper.of_sweeps import BEST, MARCONI, TRACES, by_label
from marconi_sim.paper.text import change, percent

_NO_FLOPS = "alpha 0"
_BELOW_ONE = 0.9  # the largest of the grid at which old entries can still go


def what_eviction_could_win(rows: Rows) -> dict[str, str]:
    """In the paper's grid: sglang+ against a cache that never evicts; alpha = 0 and the best alpha against sglang+."""
    found = {}
    for trace in TRACES:
        frame = rows.frame[rows.frame.trace == trace]
        table = by_label(frame)
        reached = table["sglang+"] / table["unbounded"]
        full = frame[frame.label == "unbounded"].peak_bytes
        held = frame.drop_duplicates("configuration").capacity_bytes
        found[f"{trace} room"] = (
            f"{percent(reached.mean())} of it, at least {percent(reached.min())};"
            f" the cache is {percent(held.min() / full.max(), 0)} to {percent(held.max() / full.min(), 0)}"
            f" of the working set of {full.max() / 1e9:.0f} GB"
        )
        found[f"{trace} parts"] = (
            f"{change((table[_NO_FLOPS] / table['sglang+'] - 1).mean())}"
            f" / {change((table[BEST] / table[_NO_FLOPS] - 1).mean())}"
        )
        found[f"{trace} tuner"] = _tuner(frame, table)
        at = frame[(frame.label == "static alpha") & (frame.param_alpha == str(_BELOW_ONE))]
        fixed = at.set_index("configuration").token_hit_rate[table.index] / table["sglang+"] - 1
        found[f"{trace} fixed"] = f"{change(fixed.mean())} (lowest {change(fixed.min())})"
    return found


def _tuner(frame: pd.DataFrame, table: pd.DataFrame) -> str:
    alpha = frame[frame.label == MARCONI].set_index("configuration").tuned_alpha[table.index]
    gain = table[MARCONI] / table["sglang+"] - 1
    groups = {
        "alpha >= 1": alpha >= 1,
        "alpha < 1": alpha < 1,
        "never tuned": alpha.isna(),
    }
    return "; ".join(
        f"{name}: {int(of.sum())} configurations, {change(gain[of].mean())}"
        for name, of in groups.items()
        if of.any()
    )


def contention(rows: Rows) -> dict[str, str]:
    """Where the best fixed alpha gains most over sglang+, and what alpha = 0 and the tuner give there, by trace."""
    found = {}
    for trace, frame in rows.frame.groupby("trace", sort=False):
        capacity = frame.drop_duplicates("configuration").set_index("configuration").capacity
        table = by_label(frame)
        gain = table.div(table["sglang+"], axis=0) - 1
        at = str(gain[BEST].idxmax())
        row: dict[Any, float] = gain.loc[at].to_dict()
        share = percent(float(capacity[at].removesuffix("wss")), 0)
        others = [f"alpha 0 {change(row[_NO_FLOPS])}"] if _NO_FLOPS in row else []
        found[str(trace)] = (
            f"{change(row[BEST])} at {share} of the working set"
            f" ({', '.join([*others, f'tuned {change(row[MARCONI])}'])})"
        )
    return found


def tuner_window(rows: Rows) -> dict[str, str]:
    """Hit rates before the tuner chooses, which it judges by, and after."""
    figure = figures_of(rows.experiment)[0]
    tuned = rows.frame[rows.frame.label == MARCONI].iloc[0]
    first = int(tuned.first_eviction_request)
    end = first * int(tuned.param_multiplier)
    found = {}
    for label in (_NO_FLOPS, "alpha 0.9", "alpha 1"):
        run = run_of(rows, figure, label)
        requests = rows.requests(run, "input_tokens", "reused_tokens")
        window, after = (part.sum() for part in (requests[first:end], requests[end:]))
        rates = [percent(part.reused_tokens / part.input_tokens) for part in (window, after)]
        found[label] = f"{rates[0]} in the window, {rates[1]} after it"
    return found
