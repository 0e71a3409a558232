"""What `validate-ttft` and `validate-exact` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from marconi_sim.adapters.exactness import EXACT, NOTICED
from marconi_sim.base.units import format_bytes
from marconi_sim.validation.exact import Exactness, Setting
from marconi_sim.validation.ttft import CLOCKS


def _table(first: str, titles: Sequence[str], title: str | None = None) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False,
        title=title, title_justify="left",
    )  # fmt: skip
    table.add_column(first, no_wrap=True)
    for each in titles:
        table.add_column(each, justify="right")
    return table


def print_measurement(summary: Mapping[str, Any]) -> None:
    """Print two tables: what each policy made of TTFT, and how far off the latency model is.

    Args:
        summary: `Measurement.summary()`.
    """
    console = Console(highlight=False)
    console.print(
        f"[bold]{summary['trace'].replace('[', chr(92) + '[')}[/]\n"
        f"on {summary['backend']} ({summary['dtype']}, {summary['hardware']}), tokens drawn at random\n"
        f"{format_bytes(summary['kv_bytes_per_token'])} of KV per token,"
        f" {format_bytes(summary['state_bytes'])} per state, cache {format_bytes(summary['capacity_bytes'])}"
    )
    policies = _table(
        "policy",
        (
            "token\nhit rate", "FLOPs\nsaved", "mean TTFT\npredicted", "(ms)\nmeasured", "\nmedian", "\nP95",
            "error of\na logit",
        ),
    )  # fmt: skip
    for row in summary["policies"]:
        error = row["max_logit_error"]
        times = ("predicted_mean_ttft", "mean_ttft", "median_ttft", "p95_ttft")
        policies.add_row(
            row["policy"], f"{row['token_hit_rate']:.2%}", f"{row['flops_saved']:.2%}",
            *(f"{1e3 * row[key]:,.1f}" for key in times),
            "-" if error is None else f"{error:.0e}",
        )  # fmt: skip
    console.print(policies)
    fits = _table(
        "time",
        (
            "overhead\n(ms)", "rates\nGFLOP/s", "\nGB/s", "fitted\nrequests", "held-out\nrequests",
            "error\nmedian", "\nP95",
        ),
        "prediction: overhead + FLOPs left / rate + bytes restored / rate",
    )  # fmt: skip
    for clock, fit in summary["fits"].items():
        rates = (fit["seconds_per_flop"], fit["seconds_per_restored_byte"])
        fits.add_row(
            CLOCKS[clock], f"{1e3 * fit['overhead_seconds']:.2f}",
            *(f"{1e-9 / rate:,.2f}" if rate else "-" for rate in rates),
            str(fit["fitted"]), str(fit["held_out"]), f"{fit['median_error']:.1%}", f"{fit['p95_error']:.1%}",
        )  # fmt: skip
    console.print(fits)


def print_exactness(setting: Setting, rows: Sequence[Exactness]) -> None:
    """Print one row per backend."""
    console = Console(highlight=False)
    console.print(
        f"[bold]{setting.workload.name.replace('[', chr(92) + '[')}[/], policy {setting.policy.name}\n"
        "float64, tokens at random; bytes of adapter and simulator equal after every request\n"
        f"error: of a logit, against a prefill from nothing, the largest; exact: below {EXACT:g}\n"
        f"two mistakes made on purpose: in how many requests the error is above {NOTICED:g}",
        soft_wrap=True,
    )
    table = _table(
        "backend",
        (
            "re-\nusing", "splits", "merges", "evic-\ntions", "branch\nstates", "\nerror",
            "mistakes\none off", "\nother", "",
        ),
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.backend, f"{row.reusing}/{row.requests}", str(row.splits), str(row.merges), str(row.evictions),
            str(row.branch_checkpoints), f"{row.error:.0e}", str(row.one_token_off_noticed),
            str(row.wrong_prefix_noticed), row.verdict if row.passed else f"[bold]{row.verdict}[/]",
        )  # fmt: skip
    console.print(table)
