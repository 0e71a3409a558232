"""Draw the README's picture: `python docs/picture.py`. Every number comes from the runs made here."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

import marconi_sim as ms

mpl.use("Agg")
import matplotlib.pyplot as plt

TRACE = "swebench"
CAPACITIES = (5, 7.5, 10, 15, 20, 25, 30, 40, 60, 80, 100)
ANATOMY_AT = 20
# Okabe and Ito's palette, told apart without colour vision too; and a marker each for print.
POLICIES = {"vllm+": ("#D55E00", "s"), "sglang+": ("#009E73", "^"), "marconi": ("#0072B2", "o")}
PARTS = {
    "reused": ("reused", "#0072B2"),
    "no_checkpoint": ("no checkpoint", "#56B4E9"),
    "state_evicted": ("state evicted", "#F0E442"),
    "kv_evicted": ("KV evicted", "#E69F00"),
    "grid": ("beyond the last block", "#CC79A7"),
    "cold": ("cold: never seen", "#BBBBBB"),
}


def main() -> None:
    """Run what the picture shows and save it beside this file."""
    trace = ms.load_trace(TRACE)
    runs = {
        (policy, capacity): ms.simulate(trace, policy=policy, capacity=f"{capacity}GB").summary
        for policy in (*POLICIES, "unbounded", "ceiling")
        for capacity in CAPACITIES
    }
    figure, (curves, anatomy) = plt.subplots(1, 2, figsize=(10, 3.7), width_ratios=(1.25, 1))
    for policy, (colour, marker) in POLICIES.items():
        rates = [100 * runs[policy, c]["token_hit_rate"] for c in CAPACITIES]
        curves.plot(CAPACITIES, rates, color=colour, marker=marker, label=policy)
    for bound, style in (("ceiling", ":"), ("unbounded", "--")):
        rate = 100 * runs[bound, CAPACITIES[0]]["token_hit_rate"]
        curves.axhline(rate, color="#444444", linestyle=style, linewidth=1)
        above = bound == "ceiling"
        curves.annotate(
            f"{bound}: {'every token seen before' if above else 'marconi without eviction'}",
            (CAPACITIES[0], rate), (-6, 3 if above else -3), textcoords="offset points",
            va="bottom" if above else "top", fontsize=8.5, color="#444444",
        )  # fmt: skip
    curves.set_xscale("log")
    curves.set_xticks([5, 10, 20, 40, 60, 100], ["5", "10", "20", "40", "60", "100"])
    curves.minorticks_off()
    curves.set_ylim(0, 70)
    curves.set_xlabel("cache capacity, GB (logarithmic)")
    curves.set_ylabel("token hit rate, %")
    curves.set_title("What a policy buys", loc="left", fontweight="bold")
    curves.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.72))

    names = list(POLICIES)
    left = np.zeros(len(names))
    for cause, (label, colour) in PARTS.items():
        share = np.array(
            [
                100 * (s["reused_tokens"] if cause == "reused" else s["missed"][cause]) / s["input_tokens"]
                for s in (runs[name, ANATOMY_AT] for name in names)
            ]
        )  # fmt: skip
        if share.max() >= 0.3:
            anatomy.barh(names, share, left=left, color=colour, label=label, edgecolor="white")
        left += share
    anatomy.set_xlim(0, 100)
    anatomy.set_xlabel("share of input tokens, %")
    anatomy.set_title(f"Why tokens miss, at {ANATOMY_AT} GB", loc="left", fontweight="bold")
    anatomy.legend(
        frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.19), fontsize=9
    )
    for axes in (curves, anatomy):
        axes.spines[["top", "right"]].set_visible(False)
    recipe = trace.recipe
    note = (
        f"{recipe.title}: {trace.requests:,} requests of {trace.sessions} sessions. Source: {recipe.source}.\n"
        f"Arrivals modelled: {trace.arrivals.sessions_per_second:g} session/s, response time"
        f" {trace.arrivals.response_time:g} s. Model hybrid-7b, accounting of the paper."
        f" marconi-sim {ms.__version__}, docs/picture.py."
    )
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.text(0.01, 0.015, note, fontsize=7.5, color="#444444", va="bottom")
    path = Path(__file__).with_name("overview.png")
    figure.savefig(path, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
