"""Speed and memory, measured: `make bench` prints the tables that stand in the README.

Every row is measured in a process of its own, so that its peak memory is its own. Rows on shipped traces say so; the
large ones are synthetic sessions whose index is generated, because no real trace is that large.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from marconi_sim import load_policy, load_trace
from marconi_sim.core.index.build import NONE, GrowingTree, insert_sequences
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.model import load_model

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm+": ("vllm+", {}),
    "sglang+": ("sglang+", {}),
    "marconi, alpha 0": ("marconi", {"alpha": 0.0}),
    "marconi, alpha 0.5": ("marconi", {"alpha": 0.5}),
    "marconi, alpha 2": ("marconi", {"alpha": 2.0}),
}
LIVE = (10**3, 10**4, 10**5, 10**6)
REPEATS = 3


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def synthetic_sessions(sessions: int, turns: int, seed: int = 0) -> tuple[Index, Requests]:
    """Return an index and its requests: chats of `turns` turns that share one of 50 system prompts, interleaved."""
    rng = np.random.default_rng(seed)
    heads = 50
    head_depth = rng.integers(200, 3000, heads)
    head = rng.integers(0, heads, sessions)
    nodes = 1 + heads + np.arange(sessions * turns * 2).reshape(sessions, turns * 2)
    parent = np.zeros(nodes.size + heads + 1, np.int32)
    depth = np.zeros(parent.size, np.int32)
    parent[0] = NONE
    depth[1 : 1 + heads] = head_depth
    parent[nodes[:, 0]] = 1 + head
    parent[nodes[:, 1:]] = nodes[:, :-1]
    depth[nodes] = head_depth[head][:, None] + rng.integers(20, 600, nodes.shape).cumsum(axis=1)
    gaps = rng.exponential(max(sessions / 50, 5.0), (sessions, turns))
    gaps[:, 0] = 0
    arrival = (np.arange(sessions)[:, None] + gaps.cumsum(axis=1)).ravel()
    order = np.argsort(arrival, kind="stable")
    inputs = nodes[:, 0::2].ravel()[order].astype(np.int32)
    ends = nodes[:, 1::2].ravel()[order].astype(np.int32)
    return Index(parent, depth), Requests(inputs, ends, arrival[order])


def compile_speed(dtype: str) -> list[str]:
    """Tokens a second from arrays in memory into the prefix index."""
    rng = np.random.default_rng(0)
    symbols, offsets, inputs = [], [], []
    position = 0
    for _ in range(200):
        session = rng.integers(0, 32_000, 30_000).astype(dtype)
        session[:2000] = np.arange(2000)
        for length in range(2000, 30_001, 2000):
            symbols.append(session[:length])
            offsets.append(position)
            inputs.append(length - 200)
            position += length
    tokens = np.concatenate(symbols)
    count = len(inputs)
    seconds = np.inf
    for _ in range(REPEATS):
        tree = GrowingTree(
            np.full(4 * count + 1, NONE, np.int32),
            np.zeros(4 * count + 1, np.int32),
            np.full(4 * count + 1, NONE, np.int64),
            np.zeros(200 * 30_000, dtype),
            np.full(2**16, NONE, np.int32),
            np.array([1, 0]),
        )
        started = time.perf_counter()
        insert_sequences(
            tree, tokens, np.array(offsets), np.array(inputs), np.full(count, 200),
            np.ones(count, np.bool_), 1, np.empty(count, np.int32), np.empty(count, np.int32),
        )  # fmt: skip
        seconds = min(seconds, time.perf_counter() - started)
    speed = tokens.size / seconds
    return [f"{tokens.size / 1e6:.0f} M {dtype} tokens in memory", f"{speed / 1e6:,.0f} M tokens/s"]


def replay_trace(trace: str, title: str) -> list[str]:
    """Requests a second on a shipped trace at its recipe's capacity."""
    workload = load_trace(trace)
    rows = workload.order
    index = Index(workload.trace.parent, workload.trace.depth)
    requests = Requests(
        workload.trace.input_node[rows], workload.trace.end_node[rows], workload.arrival
    )
    name, params = {**POLICIES, "unbounded": ("unbounded", {})}[title]
    policy = load_policy(name)(**params)
    capacity = workload.recipe.capacity if workload.recipe else 0
    runs = [
        policy.replay(index, requests, load_model("hybrid-7b").shape, capacity)
        for _ in range(REPEATS)
    ]
    best = min(runs, key=lambda run: run.seconds)
    evictions = int(best.outcome.totals[0])
    return [
        trace,
        title,
        f"{rows.size / best.seconds / 1e6:.2f} M",
        f"{evictions / rows.size:.2f}",
    ]


def replay_live(live: int, title: str) -> list[str]:
    """Cost of a request and of an eviction in a cache of about `live` nodes, synthetic sessions."""
    index, requests = synthetic_sessions(max(live * 3 // 10, 1000), 10)
    shape = load_model("hybrid-7b").shape
    name, params = POLICIES[title]
    policy = load_policy(name)(**params)
    capacity = live * (shape.state_bytes + 500 * shape.kv_bytes)
    repeats = REPEATS if live < 10**6 else 1
    runs = [policy.replay(index, requests, shape, capacity) for _ in range(repeats)]
    best = min(runs, key=lambda run: run.seconds)
    evictions, states = int(best.outcome.totals[0]), int(best.outcome.totals[2])
    count = requests.input_node.size
    return [
        title,
        f"{states:,}",
        f"{count / best.seconds / 1e6:.2f} M",
        f"{evictions / count:.2f}",
        f"{best.seconds / evictions * 1e6:.2f}",
        f"{peak_gigabytes():.2f}",
    ]


def replay_ten_million(title: str) -> list[str]:
    """Ten million requests, loading left out: an index and requests in memory, replayed once."""
    index, requests = synthetic_sessions(10**6, 10)
    shape = load_model("hybrid-7b").shape
    name, params = {**POLICIES, "unbounded": ("unbounded", {})}[title]
    capacity = 10**5 * (shape.state_bytes + 500 * shape.kv_bytes)
    run = load_policy(name)(**params).replay(index, requests, shape, capacity)
    states = int(run.outcome.totals[2])
    return [title, f"{states:,}", f"{run.seconds:.1f}", f"{peak_gigabytes():.2f}"]


def command_seconds() -> list[list[str]]:
    """Wall seconds of whole commands, the first run with an empty compile cache."""
    command = [sys.executable, "-m", "marconi_sim"]
    run = [*command, "run", "--trace", "swebench", "--policy", "marconi", "--capacity", "40GB", "--json"]  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for title, arguments in (
            ("`marconi-sim --help`", [*command, "--help"]),
            ("`marconi-sim run` (swebench, marconi), the first ever, compiling", run),
            ("the same, later", run),
        ):
            started = time.perf_counter()
            subprocess.run(arguments, env=environment, check=True, capture_output=True)
            rows.append([title, f"{time.perf_counter() - started:.2f}"])
    return rows


def sweep_seconds() -> list[list[str]]:
    """Wall seconds of the paper's whole sweep on two processes, kernels compiled before."""
    sweep = ["sweep", "paper", "-j", "2", "--no-resume", "--json"]
    command = [sys.executable, "-m", "marconi_sim", *sweep, "--out"]
    with tempfile.TemporaryDirectory() as folder:
        best: dict[str, Any] = {}
        for _ in range(REPEATS):
            done = subprocess.run(
                [*command, f"{folder}/paper.parquet"], check=True, capture_output=True
            )
            found = json.loads(done.stdout)
            best = min(best or found, found, key=lambda one: one["seconds"])
    return [["paper", f"{best['runs']:,}", f"{best['seconds']:.1f}"]]


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process; the kernels are compiled by an earlier call or by this one, untimed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, [":--"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    def report(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    versions = f"Python {platform.python_version()}, one core of {processor()}"
    report(f"Measured on {versions}; best of {REPEATS}, memory is the peak of the process.\n")
    rows = [alone(compile_speed, dtype) for dtype in ("int32", "int64")]
    report(table(["compiling a trace", "speed"], rows))
    traces = ("swebench", "mooncake", "botbots")
    rows = [alone(replay_trace, trace, title) for trace in traces for title in ("unbounded", *POLICIES)]  # fmt: skip
    report(table(["shipped trace", "policy", "requests/s", "evictions/request"], rows))
    rows = [alone(replay_live, live, title) for title in POLICIES for live in LIVE]
    header = ["synthetic sessions", "states held", "requests/s", "evictions/request"]
    report(table([*header, "us per eviction, all included", "GB"], rows))
    rows = [alone(replay_ten_million, title) for title in ("unbounded", "sglang+", "marconi, alpha 0.5")]  # fmt: skip
    report(table(["10 M requests, synthetic", "states held", "seconds", "GB"], rows))
    report(table(["command", "seconds"], command_seconds()))
    report(table(["sweep, on two processes", "runs", "seconds"], sweep_seconds()))


if __name__ == "__main__":
    main()
