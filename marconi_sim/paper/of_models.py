"""Our numbers for the figures that show formulas or traces: 3a, 3b, 5, 6 and 14."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marconi_sim.figures.blocks import reuse_of
from marconi_sim.figures.formulas import efficiency, sequence_bytes
from marconi_sim.figures.rows import Rows
from marconi_sim.model import Model
from marconi_sim.paper.text import percent, times
from marconi_sim.trace.load import Workload


def block_reuse(rows: Rows) -> dict[str, str]:
    """Return shares of stored blocks that are reused, for SWE-bench."""
    found = {
        row.settings["param_block_size"]: reuse_of(rows, row.run)
        for row in rows.plan.rows
        if row.settings["trace"] == "swebench"
    }
    small, large = found[32], found[128]
    return {
        "block 32": f"{percent(small.kv / small.stored)} / {percent(small.state / small.stored, 2)}"
        f" ({times(small.kv / small.state)})",
        "block 128": percent(large.state / large.stored),
    }


def bytes_of_sequence(models: Sequence[Model]) -> dict[str, str]:
    """Return the bytes of one sequence of 10,000 tokens, by block size."""
    hybrid, transformer = models
    plain = sequence_bytes(transformer, 10_000, None)
    sizes = {block: sequence_bytes(hybrid, 10_000, block) for block in (16, 32)}
    return {
        f"block {block}": f"{size / 1e9:.1f} GB, {times(size / plain)}"
        for block, size in sizes.items()
    }


def flop_efficiency(models: Sequence[Model]) -> dict[str, str]:
    """Return the FLOPs saved per byte at two lengths, and the slope of the SSM layers' share alone."""
    found = {
        model.name: " to ".join(f"{efficiency(model, n):,.0f}" for n in (1_000, 30_000))
        for model in models
    }
    hybrid = next(model for model in models if model.name == "hybrid-7b")
    slope = hybrid.flops_by_layer(1.0)["ssm"] / hybrid.state_bytes
    return {
        "transformer": found["transformer-7b"],
        "hybrid": found["hybrid-7b"],
        "ssm": f"{slope:.0f} L",
    }


def flops_by_layer(models: Sequence[Model]) -> dict[str, str]:
    """Return attention's share of the FLOPs at three lengths."""
    (model,) = models
    shares = []
    for length in (5_000, 10_000, 30_000):
        flops = model.flops_by_layer(length)
        shares.append(f"{percent(flops['attention'] / sum(flops.values()))} at {length // 1000}K")
    return {"attention": ", ".join(shares)}


def lengths(workloads: Sequence[Workload]) -> dict[str, str]:
    """Return what is said of the three traces' lengths, as shares."""
    inputs = {w.name: w.trace.input_tokens[w.order] for w in workloads}
    outputs = {w.name: w.trace.output_tokens[w.order] for w in workloads}
    low, middle, high = (int(x) for x in np.percentile(inputs["swebench"], (5, 50, 95)))
    return {
        "lmsys": f"{percent((inputs['lmsys'] < 10_000).mean(), 0)} of inputs < 10K;"
        f" {percent((outputs['lmsys'] >= 1_000).mean(), 0)} of outputs >= 1K",
        "sharegpt": f"{percent((inputs['sharegpt'] < 2_000).mean(), 0)} of inputs < 2K",
        "swebench": f"inputs {low:,} (P5), {middle:,} (P50), {high:,} (P95), {int(inputs['swebench'].max()):,} (most)",
    }
