"""`marconi-sim validate-ttft` and `marconi-sim validate-exact`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.cli.options import catalogue_option, json_option, path_option
from marconi_sim.cli.output import policies_at_work, print_json

_POLICIES = ("vanilla", "sglang+", "marconi")
_seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Of tokens and weights.",
)
_requests_option = click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="N",
    help="Only the first N requests.",
)
_WAITED = 0.1  # of the wall clock


def _trace_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--trace", default=default, show_default=True, metavar="NAME|FILE", help="What is replayed."
    )


@click.command("validate-ttft")
@_trace_option("swebench")
@_requests_option
@click.option(
    "--longest",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Scale all lengths so that the longest input has so many tokens. [2048 on a CPU; else as they are]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="A radix-tree policy or vanilla. Repeatable. [vanilla, sglang+, marconi]",
)
@click.option(
    "--capacity",
    metavar="BYTES",
    help="Of the cache: 60MB, 1.5GiB. [half of what a cache without limit would hold]",
)
@click.option(
    "--backend",
    default="small",
    show_default=True,
    metavar="NAME|FOLDER",
    help="A shape of the own hybrid model (tiny, small, bamba-9b), a family of transformers (bamba, qwen3_next ...) for"
    " a tiny model, a config.json for one of its shape, or a folder with a checkpoint (docs/validation.md).",
)
@click.option(
    "--device", default="cpu", show_default=True, metavar="NAME", help="cpu, cuda, cuda:1 ..."
)
@click.option(
    "--dtype", metavar="NAME", help="Of the weights: float32, bfloat16 ... [the shape's own]"
)
@click.option(
    "--threads",
    type=click.IntRange(1, os.cpu_count()),
    default=1,
    show_default=True,
    metavar="N",
    help="Of the CPU.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Replay everything so often; the fastest time of each prefill counts.",
)
@click.option(
    "--compare",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    metavar="N",
    help="Compare the logits of N requests with a prefill from nothing.",
)
@_seed_option
@path_option(
    "--out", metavar="FOLDER", help="Write requests.parquet, profile.toml, ttft.png and ttft.pdf."
)
@catalogue_option
@json_option
def validate_ttft_command(
    trace: str,
    requests: int,
    longest: int | None,
    policies: tuple[str, ...],
    capacity: str | None,
    backend: str,
    device: str,
    dtype: str | None,
    threads: int,
    repeats: int,
    compare: int,
    seed: int,
    out: Path | None,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Replay a trace on a real model and compare the time to first token with what was predicted.

    The simulator decides what is reused, kept and evicted; the model does it. Tokens are drawn at random, equal where
    the trace's sequences are equal. Needs the extra: pip install 'marconi-sim[torch]'.

    \b
      marconi-sim validate-ttft --out validation
      marconi-sim validate-ttft --backend bamba-9b --device cuda --requests 200 --out validation
    """
    from marconi_sim.base.files import check_folder
    from marconi_sim.base.notices import warn
    from marconi_sim.base.progress import progress, status

    chosen = policies or _POLICIES
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"--policy {' '.join(chosen)}: one is given twice")
    if out is not None:
        check_folder(out)
    with policies_at_work():
        with status("loading the model"):
            from marconi_sim.validation.measurement import measure, prepare

            setting = prepare(
                trace, chosen, requests=requests, longest=longest, capacity=capacity, backend=backend,
                device=device, dtype=dtype, threads=threads, repeats=repeats, compare=compare, seed=seed,
                search=search,
            )  # fmt: skip
        with progress(
            "replaying", repeats * len(chosen) * setting.workload.requests, "requests"
        ) as advance:
            measurement = measure(setting, advance)
    if out is not None:
        measurement.write(out)
    if as_json:
        print_json(measurement.summary())
    else:
        from marconi_sim.validation.report import print_measurement

        print_measurement(measurement.summary())
    if measurement.waited > _WAITED:
        warn(
            f"the processor did something else for {measurement.waited:.0%} of the time: measure again with nothing"
            " else running, or read the processor's time"
        )
    if not measurement.exact:
        raise UserError(
            f"backend '{backend}': logits after a restored prefix are not those of a prefill from nothing"
            " (max_relative_logit_error of --json); reuse is not exact on this model"
        )


@click.command("validate-exact")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="tiny (the own hybrid model), a family of transformers, a config.json or a folder with a checkpoint."
    " Repeatable. [tiny and all families]",
)
@_trace_option("taubench")
@_requests_option
@click.option(
    "--longest",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="TOKENS",
    help="Scale all lengths so that the longest input has so many tokens.",
)
@click.option(
    "--policy",
    default="marconi",
    show_default=True,
    metavar="NAME|FILE",
    help="A radix-tree policy.",
)
@_seed_option
@catalogue_option
@json_option
@click.pass_context
def validate_exact_command(
    context: click.Context,
    backends: tuple[str, ...],
    trace: str,
    requests: int,
    longest: int,
    policy: str,
    seed: int,
    search: tuple[str, ...],
    as_json: bool,
) -> None:
    """Prove on real models that reuse is exact.

    Replays requests on a model in float64 and compares the logits of each with a prefill from nothing; the bytes of the
    tensors with the simulator's; and does the same with two mistakes, a state one token off and one of another prefix,
    that must show. Exit status 1 if anything is not as it should be. Needs the extra: pip install 'marconi-sim[torch]'.

    \b
      marconi-sim validate-exact
      marconi-sim validate-exact --backend tiny --backend qwen3_next --requests 200
    """
    from marconi_sim.base.progress import progress, status

    with policies_at_work():
        with status("loading"):
            from marconi_sim.validation.exact import BACKENDS, check_backend, prepare_exact

            setting = prepare_exact(trace, policy, requests, longest, search)
        chosen = backends or BACKENDS
        total = 3 * len(chosen) * setting.workload.requests
        with progress("replaying", total, "requests") as advance:
            rows = [check_backend(setting, name, seed, advance) for name in chosen]
    if as_json:
        told = [{**row._asdict(), "verdict": row.verdict, "passed": row.passed} for row in rows]
        trace_name, policy_name = setting.workload.name, setting.policy.name
        print_json({"trace": trace_name, "policy": policy_name, "backends": told})
    else:
        from marconi_sim.validation.report import print_exactness

        print_exactness(setting, rows)
    if not all(row.passed for row in rows):
        context.exit(1)
