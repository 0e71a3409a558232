"""Writes `tests/golden/artifact/*.json`: the published code's rules on the traces of `make_golden.py`.

The results are those of our replay, frozen when it gave what the published code gave on every request of its own
expected results, so that this repository can be tested without them. Run `python tests/make_artifact_golden.py` only
after `test_artifact.py` has passed with those.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_golden
import naive
from support import kernel_case, model

from marconi_sim.core.departures import ARTIFACT
from marconi_sim.core.outcome import EVICTIONS, KV_TOKENS, PEAK_BYTES, STATES
from marconi_sim.policy.artifact import replay_departing
from marconi_sim.policy.load import load_policy

GOLDEN = Path(__file__).parent / "golden"
FOLDER = GOLDEN / "artifact"
TRACES = tuple(make_golden.TRACES)
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vllm+", {}),
    ("sglang+", {}),
    ("marconi", {"alpha": 0.0}),
    ("marconi", {"alpha": 0.5}),
    ("marconi", {"alpha": 1.5}),
    ("marconi", {"alpha": "bootstrap", "multiplier": 2}),
)


def content(name: str) -> str:
    """Return the text of one file: one line per run."""
    golden = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    requests = [naive.Request(*row[:3], tuple(row[3]), tuple(row[4])) for row in golden["requests"]]
    shape = naive.Shape(*golden["shape"])
    index, of_index, _, capacity = kernel_case(requests, shape, golden["capacity_bytes"])
    lines = []
    for policy, params in RUNS:
        given = {"block_size": golden["block"]} if policy == "vllm+" else params
        replayed = replay_departing(
            load_policy(policy)(**given), index, of_index, model(shape), capacity, ARTIFACT
        )
        totals = replayed.outcome.totals
        run = {
            "policy": policy,
            "params": params,
            **replayed.findings,
            "reused": replayed.outcome.reused.tolist(),
            "states": int(totals[STATES]),
            "kv_tokens": int(totals[KV_TOKENS]),
            "evictions": int(totals[EVICTIONS]),
            "peak_bytes": int(totals[PEAK_BYTES]),
        }
        lines.append(json.dumps(run, separators=(",", ":")))
    head = json.dumps({"synthetic": True, "trace": f"{name}.json"})
    return f'{head[:-1]},\n"runs": [\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    for name in TRACES:
        (FOLDER / f"{name}.json").write_text(content(name), "utf-8")
