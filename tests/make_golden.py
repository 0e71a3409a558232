"""Writes `tests/golden/*.json`: small synthetic traces and what the naive reference makes of them.

Run `python tests/make_golden.py` after a deliberate change of the rules, and say in the commit why
the results changed. `test_naive.py` checks that the files are what this script would write.

A file holds `shape` [attention, ssm, mlp, D, N], `capacity_bytes`, `block` (tokens, for vllm+),
`requests` [[session, turn, arrival, input, output], ...] in processing order, and `runs`: policy,
params, tuned_alpha, first_eviction_request, and columns with one number per request (`missed`: one
column per cause that occurs; `evictions` and `bypassed` count from the start).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import naive
from naive import Request, Shape, Tokens

FOLDER = Path(__file__).parent / "golden"
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vanilla", {}),
    ("vllm+", {}),
    ("sglang+", {}),
    ("marconi", {"alpha": 0.0}),
    ("marconi", {"alpha": 0.5}),
    ("marconi", {"alpha": 2.0}),
    ("marconi_bootstrap", {"multiplier": 3}),
    ("unbounded", {}),
    ("ceiling", {}),
)


def _words(rng: random.Random, low: int, high: int) -> Tokens:
    return tuple(rng.randrange(100) for _ in range(rng.randint(low, high)))


def _chat(rng: random.Random) -> list[Request]:
    """Sessions under shared system prompts; answers are regenerated, messages edited."""
    prompts = [_words(rng, 8, 16) for _ in range(3)]
    requests = []
    for session in range(12):
        history = prompts[rng.randrange(3)]
        arrival = float(session)
        for turn in range(rng.randint(1, 5)):
            tokens, answer = history + _words(rng, 2, 8), _words(rng, 1, 8)
            requests.append(Request(session, turn, arrival, tokens, answer))
            arrival += rng.randint(1, 6)
            fate = rng.random()
            if fate < 0.6:
                history = tokens + answer
            elif fate < 0.8:
                history = tokens[:-1]
    return requests


def _agent(rng: random.Random) -> list[Request]:
    """Sessions that append observations and drop all but the last two."""
    system, separator = _words(rng, 20, 20), (100,)
    requests = []
    for session in range(8):
        task = _words(rng, 5, 10)
        steps: list[tuple[Tokens, Tokens]] = []
        for turn in range(rng.randint(2, 7)):
            tokens = system + task
            for i, (action, observation) in enumerate(steps):
                tokens += action + (observation if i >= len(steps) - 2 else separator)
            action = _words(rng, 2, 5)
            requests.append(Request(session, turn, session * 2.0 + turn, tokens, action))
            steps.append((action, _words(rng, 4, 12)))
    return requests


def _forks(rng: random.Random) -> list[Request]:
    """Few tokens, many forks: inputs start like any earlier sequence; some are far too long."""
    requests: list[Request] = []
    for session in range(60):
        head: Tokens = ()
        if requests:
            other = rng.choice(requests)
            sequence = other.input + other.output
            head = sequence[: rng.randint(0, len(sequence))]
        tail = rng.randint(0, 6) if rng.random() < 0.9 else 110
        tokens = head + tuple(rng.randrange(3) for _ in range(tail))
        output = tuple(rng.randrange(3) for _ in range(rng.randint(0, 4)))
        requests.append(Request(session, 0, session / 2, tokens or (0,), output))
    return requests


# name -> (requests before sorting, shape, tokens of KV and number of states that fit, block)
TRACES = {
    "chat": (_chat(random.Random(1)), Shape(2, 1, 1, 8, 2), 110, 14, 4),
    "agent": (_agent(random.Random(2)), Shape(1, 2, 1, 4, 4), 140, 8, 8),
    "forks": (_forks(random.Random(3)), Shape(2, 2, 3, 8, 1), 60, 8, 2),
}


def _columns(result: naive.Result) -> dict[str, Any]:
    names = ("matched", "reused", "bytes", "states", "kv_tokens", "evictions", "bypassed")
    missed = {cause: [row["causes"][cause] for row in result] for cause in naive.CAUSES}
    return {name: [row[name] for row in result] for name in names} | {
        "missed": {cause: column for cause, column in missed.items() if any(column)}
    }


def content(name: str) -> str:
    """Return the text of one golden file: one line per request and per run."""
    unsorted, shape, kv_tokens, states, block = TRACES[name]
    requests = sorted(
        unsorted, key=lambda request: (request.arrival, request.session, request.turn)
    )
    capacity = kv_tokens * shape.kv_bytes_per_token + states * shape.state_bytes
    runs = []
    for policy, params in RUNS:
        given = {"block": block} if policy == "vllm+" else {}
        result = naive.run(policy, requests, capacity, shape, **params, **given, check=True)
        tuned = {
            "tuned_alpha": result.tuned_alpha,
            "first_eviction_request": result.first_eviction_request,
        }
        runs.append({"policy": policy, "params": params} | tuned | _columns(result))

    def lines(items: list[Any]) -> str:
        return ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)

    head = json.dumps(
        {"synthetic": True, "shape": shape, "capacity_bytes": capacity, "block": block}
    )
    return f'{head[:-1]},\n"requests": [\n{lines(requests)}\n],\n"runs": [\n{lines(runs)}\n]}}\n'


if __name__ == "__main__":
    for name in TRACES:
        (FOLDER / f"{name}.json").write_text(content(name))
