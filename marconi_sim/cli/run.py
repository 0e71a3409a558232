"""`marconi-sim run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marconi_sim.base.errors import UsageError
from marconi_sim.cli.options import (
    catalogue_option,
    chosen_model,
    json_option,
    model_option,
    parse_pairs,
    path_option,
)
from marconi_sim.cli.output import policies_at_work, print_json

if TYPE_CHECKING:
    from marconi_sim.simulation.result import Result
    from marconi_sim.trace.load import Workload

# What every result is framed by: no cache, no eviction, no limit of any kind.
BOUNDS = ("vanilla", "unbounded", "ceiling")


@click.command("run")
@click.option(
    "--trace", required=True, metavar="NAME|FILE", help="A shipped trace, or a trace file."
)
@click.option(
    "--policy",
    required=True,
    metavar="NAME|FILE",
    help="A shipped policy, or a policy file (run as code).",
)
@click.option(
    "--model",
    default="hybrid-7b",
    show_default=True,
    metavar="NAME|FILE",
    help="A model shape, or a Hugging Face config.json.",
)
@model_option
@click.option(
    "--capacity",
    metavar="BYTES",
    help="Of the cache: 60GB, 1.5GiB, 1500. Default: what the trace's recipe says.",
)
@click.option(
    "--param",
    "param_texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the policy. Repeatable.",
)
@click.option(
    "--rules",
    default="paper",
    show_default=True,
    metavar="paper|artifact",
    help="artifact: the rules of the authors' published code (sglang+, marconi and vllm+; docs/fidelity.md).",
)
@click.option("--sessions", type=int, metavar="N", help="Only the first N sessions of the trace.")
@click.option(
    "--sessions-per-second",
    type=float,
    metavar="RATE",
    help="Start sessions evenly spaced at this rate.",
)
@click.option(
    "--response-time",
    type=float,
    metavar="SECONDS",
    help="Mean of the Poisson gaps between a session's turns.",
)
@click.option("--seed", type=int, metavar="N", help="Of the arrival model's random draws.")
@path_option("--requests-out", help="Write one row per request (Parquet).")
@path_option("--out", help="Write the run as one row (Parquet).")
@click.option("--check", is_flag=True, help="Check every invariant after every request (slower).")
@catalogue_option
@json_option
def run_command(
    trace: str,
    policy: str,
    model: str,
    model_texts: tuple[str, ...],
    capacity: str | None,
    param_texts: tuple[str, ...],
    rules: str,
    sessions: int | None,
    sessions_per_second: float | None,
    response_time: float | None,
    seed: int | None,
    requests_out: Path | None,
    out: Path | None,
    check: bool,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Replay a trace against a cache and print what was reused, and why the rest was not.

    \b
      marconi-sim run --trace swebench --policy marconi --capacity 40GB
      marconi-sim run --trace swebench --policy marconi --param alpha=0.5 --requests-out requests.parquet
      marconi-sim run --trace my.jsonl.gz --policy ./mine.py --json
    """
    from marconi_sim.base.files import check_table
    from marconi_sim.base.progress import status

    params = parse_pairs("--param", param_texts, "alpha=0.5")
    for option, path in (("--out", out), ("--requests-out", requests_out)):
        if path is not None:
            for what, other in (("trace", trace), ("policy", policy), ("model", model)):
                if path.exists() and Path(other).exists() and path.samefile(other):
                    raise UsageError(f"{option} {path}: is the {what} itself; give another name")
            check_table(path)
    if out is not None and requests_out is not None and out.resolve() == requests_out.resolve():
        raise UsageError(f"--out and --requests-out: both are {out}; give two names")
    with policies_at_work(), status("loading"):
        from marconi_sim.simulation.simulate import simulate
        from marconi_sim.trace.load import load_trace

        shape = chosen_model(model, model_texts)
        workload = load_trace(
            trace,
            sessions=sessions,
            sessions_per_second=sessions_per_second,
            response_time=response_time,
            seed=seed,
            search=search,
        )
    replaying = f"replaying {workload.requests:,} requests (a policy's first run compiles it)"
    with policies_at_work(), status(replaying):
        result = simulate(
            workload,
            policy=policy,
            capacity=capacity,
            model=shape,
            params=params,
            rules=rules,
            check=check,
            search=search,
        )
        bounds = {
            name: simulate(workload, policy=name, capacity=capacity, model=shape).summary
            for name in BOUNDS
            if name != policy
        }
    if requests_out is not None:
        result.write_requests(requests_out)
    if out is not None:
        result.write_summary(out)
    if as_json:
        _print_json(result, bounds)
    else:
        _print_tables(workload, result, bounds)


def _print_json(result: Result, bounds: dict[str, Mapping[str, Any]]) -> None:
    keys = ("token_hit_rate", "reused_tokens", "flops_saved")
    framed = {
        **result.summary,
        "bounds": {name: {key: bound[key] for key in keys} for name, bound in bounds.items()},
    }
    print_json(framed)


def _print_tables(workload: Workload, result: Result, bounds: dict[str, Mapping[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from marconi_sim.base.units import counted, format_bytes

    console = Console(highlight=False)
    summary = result.summary
    title = workload.recipe.title if workload.recipe else "no recipe"
    synthetic = "" if "SYNTHETIC" in title or not summary["synthetic"] else " SYNTHETIC"
    console.print(
        f"[bold]{summary['trace']}[/]{synthetic} ({title})\n{counted(summary['requests'], 'request')}"
        f" of {counted(summary['sessions'], 'session')}, {summary['input_tokens']:,} input tokens\n"
        f"model {summary['model']}, cache {format_bytes(summary['capacity_bytes'])}"
    )
    if summary["rules"] != "paper":
        console.print(
            f"{summary['policy']} by the rules of its authors' code, bounds by the paper's"
        )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("policy")
    for title in (
        "token\nhit rate",
        "request\nhit rate",
        "FLOPs\nsaved",
        "peak\nbytes",
        "evictions",
        "bypassed",
    ):
        table.add_column(title, justify="right")

    def add(name: str, one: Any, style: str) -> None:
        table.add_row(
            name,
            f"{one['token_hit_rate']:.2%}",
            f"{one['request_hit_rate']:.2%}",
            f"{one['flops_saved'] / one['flops_total']:.2%}",
            "-" if name in ("vanilla", "ceiling") else format_bytes(one["peak_bytes"]),
            f"{one['evictions']:,}",
            f"{one['bypassed']:,}",
            style=style,
        )

    if "vanilla" in bounds:
        add("vanilla", bounds["vanilla"], "dim")
    add(summary["policy"], summary, "bold")
    for name in ("unbounded", "ceiling"):
        if name in bounds:
            add(name, bounds[name], "dim")
    console.print(table)
    settings = ", ".join(f"{key}={value}" for key, value in summary["params"].items())
    for key, value in summary["params"].items():
        if value == "bootstrap" and summary[f"tuned_{key}"] is not None:
            settings += (
                f"; chose {key}={summary[f'tuned_{key}']:g}"
                f" (first eviction at request {summary['first_eviction_request']:,})"
            )
    if settings:
        console.print(f"{summary['policy']}: {settings}\n")

    causes = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title="input tokens", title_justify="left")
    for title in ("tokens", "share"):
        causes.add_column(title, justify="right")
    causes.add_column("")
    for name, tokens in {"reused": summary["reused_tokens"], **summary["missed"]}.items():
        if tokens:
            causes.add_row(f"{tokens:,}", f"{tokens / summary['input_tokens']:.2%}", MEANINGS[name])
    console.print(causes)


# What becomes of an input token, in the words of the result table.
MEANINGS = {
    "reused": "reused",
    "cold": "cold: no earlier sequence had them",
    "kv_evicted": "KV evicted: their KV was in the cache once",
    "unfinished": "unfinished: the sequence that had them was still running",
    "state_evicted": "state evicted: KV is there, the state after them no longer",
    "no_checkpoint": "no checkpoint: KV is there, a state after them never was",
    "grid": "grid: beyond the last whole block",
    "last_token": "last token: always computed",
    "not_admitted": "not admitted: the cache never took the sequence that had them",
}
