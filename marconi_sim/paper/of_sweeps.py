"""Our numbers for the figures that show sweeps: 7, 8, 9, 11, 12 and 13."""

from __future__ import annotations

import numpy as np
import pandas as pd

from marconi_sim.figures.rows import Rows
from marconi_sim.paper.text import change, milliseconds, percent, points, times

MARCONI, BEST = "marconi", "best static alpha"
TRACES = ("lmsys", "sharegpt", "swebench")


def by_label(frame: pd.DataFrame, value: str = "token_hit_rate") -> pd.DataFrame:
    """Return one row per configuration, in order, and one column per label that has one run in each."""
    single = frame[~frame.duplicated(["configuration", "label"], keep=False)]
    table = single.pivot_table(index="configuration", columns="label", values=value, sort=False)
    wanted: pd.DataFrame = table.dropna(axis="columns")
    return wanted


def _both(table: pd.DataFrame, over: str, at: int) -> str:
    """Return how much marconi is over another policy in one configuration, tuned and with the best alpha."""
    row = table.iloc[at]
    best = f" (best alpha {change(row[BEST] / row[over] - 1)})"
    return change(row[MARCONI] / row[over] - 1) + best


def over_blocks(rows: Rows) -> dict[str, str]:
    """Figure 7: marconi over vllm+, mean over configurations of the ratios, and the mean hit rates."""
    found, rates = {}, []
    for trace in TRACES:
        table = by_label(rows.frame[rows.frame.trace == trace])
        found[trace] = times((table[MARCONI] / table["vllm+"]).mean())
        rates.append(f"{trace} {percent(table[MARCONI].mean(), 0)}")
    return {**found, "rates": ", ".join(rates)}


def over_recency(rows: Rows) -> dict[str, str]:
    """Figure 8: marconi over sglang+, P95 over configurations."""
    found = {}
    for trace in TRACES:
        table = by_label(rows.frame[rows.frame.trace == trace])
        tuned, best = (np.percentile(table[x] / table["sglang+"] - 1, 95) for x in (MARCONI, BEST))
        found[trace] = f"{change(tuned)} (best alpha {change(best)})"
    return found


def first_token_times(rows: Rows) -> dict[str, str]:
    """Figure 9: P95 of the time to the first token, the configuration where marconi gains most."""
    frame = rows.frame.copy()
    times_of = {run: np.percentile(rows.times(run, "linear"), 95) for run in set(frame.run)}
    frame["p95"] = frame.run.map(times_of)
    found = {}
    for trace in TRACES:
        table = by_label(frame[frame.trace == trace], "p95")
        gain = {label: 1 - table[label] / table["vanilla"] for label in table}
        at = gain[MARCONI].argmax()
        saved = (table["vanilla"] - table[MARCONI]).iloc[at]
        found[f"{trace} vanilla"] = f"{change(-gain[MARCONI].iloc[at])} ({milliseconds(saved)})"
        for other in ("vllm+", "sglang+"):
            found[f"{trace} {other}"] = points((gain[MARCONI] - gain[other]).max())
    return found


def cache_size(rows: Rows) -> dict[str, str]:
    """Figure 11: marconi over sglang+ by cache size."""
    capacity = rows.frame.drop_duplicates("configuration").set_index("configuration").capacity
    table = by_label(rows.frame)
    names = list(capacity[table.index])
    gains = table[MARCONI] / table["sglang+"] - 1
    inside = [i for i, name in enumerate(names) if int(name.removesuffix("GB")) >= 60]
    peak = max(inside, key=lambda i: gains.iloc[i])
    bound = table[BEST] / table["sglang+"] - 1
    below = max(set(range(len(names))) - set(inside), key=lambda i: (bound.iloc[i], -i))
    return {
        "60GB": _both(table, "sglang+", names.index("60GB")),
        "peak": f"{_both(table, 'sglang+', peak)} at {names[peak]}",
        "below": f"{_both(table, 'sglang+', below)} at {names[below]}",
        "140GB": _both(table, "sglang+", names.index("140GB")),
    }


def _by(rows: Rows, column: str) -> tuple[list[int], pd.DataFrame]:
    values = rows.frame.drop_duplicates("configuration").set_index("configuration")[column]
    table = by_label(rows.frame)
    return [int(value) for value in values[table.index]], table


def layers(rows: Rows) -> dict[str, str]:
    """Figure 12a: marconi over vllm+ and over sglang+ by number of SSM layers."""
    counts, table = _by(rows, "ssm_layers")
    found = {
        str(
            count
        ): f"{times(table[MARCONI].iloc[i] / table['vllm+'].iloc[i])} / {_both(table, 'sglang+', i)}"
        for i, count in enumerate(counts)
    }
    none = table.iloc[counts.index(0)]
    found["0"] = ", ".join(
        f"{label} {percent(none[label])}" for label in ("vllm+", "sglang+", MARCONI)
    )
    return found


def state_dimension(rows: Rows) -> dict[str, str]:
    """Figure 12b: marconi over vllm+ and over sglang+ by state dimension."""
    sizes, table = _by(rows, "state_dimension")
    blocks, recency = table[MARCONI] / table["vllm+"], table[MARCONI] / table["sglang+"]
    order = np.argsort(sizes)
    return {
        "vllm+": ", ".join(times(blocks.iloc[i]) for i in order),
        "sglang+": ", ".join(times(recency.iloc[i]) for i in order),
    }


def _ends(rows: Rows, column: str, first: float, last: float) -> dict[str, str]:
    values = rows.frame.drop_duplicates("configuration").set_index("configuration")[column]
    table = by_label(rows.frame)
    ends = [table.loc[values.index[values == value][0]] for value in (first, last)]
    return {
        "rate": " -> ".join(percent(row[MARCONI]) for row in ends),
        "sglang+": " -> ".join(times(row[MARCONI] / row["sglang+"]) for row in ends),
    }


def session_rate(rows: Rows) -> dict[str, str]:
    """Figure 13a: from 0.5 to 2 sessions per second."""
    return _ends(rows, "sessions_per_second", 0.5, 2)


def response_time(rows: Rows) -> dict[str, str]:
    """Figure 13b: response times from 5 to 10 s."""
    return _ends(rows, "response_time", 5, 10)
