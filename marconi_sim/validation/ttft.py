"""Does a prefill take the time that was predicted? One latency model for all policies, fitted and held to account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marconi_sim.latency.fit import PrefillTime, fit_prefill_time, relative_errors

CLOCKS = {"ttft": "wall clock", "ttft_cpu": "processor time"}  # column -> what it is
_LEAST = 8  # requests; the fit takes half of them


class Fit(NamedTuple):
    """A latency model and how far off it is on requests that it was not fitted to.

    clock: column of the times: `ttft` or `ttft_cpu`.
    time: the fitted terms.
    fitted, held_out: numbers of requests.
    median_error, p95_error: relative, of the held-out requests.
    """

    clock: str
    time: PrefillTime
    fitted: int
    held_out: int
    median_error: float
    p95_error: float


def pool(runs: Mapping[str, pd.DataFrame], prompts: NDArray[np.int32]) -> pd.DataFrame:
    """Return the requests of all replays as one table, with `policy`, `flops_left` and `held_out`.

    Every other prompt is held out, the same ones under every policy, so that no prompt is on both sides.

    Args:
        runs: policy -> its requests.
        prompts: int32 (requests,). The same number for the same prompt.
    """
    _, first, which = np.unique(prompts, return_index=True, return_inverse=True)
    place = np.empty(first.size, np.int64)
    place[np.argsort(first)] = np.arange(first.size)  # prompts by their first request
    held_out = place[which] % 2 == 1
    tables = []
    for policy, rows in runs.items():
        left = rows.flops_total - rows.flops_saved
        tables.append(rows.assign(policy=policy, flops_left=left, held_out=held_out))
    return pd.concat(tables, ignore_index=True)


def fit_requests(rows: pd.DataFrame, clock: str) -> Fit:
    """Fit the latency model to the requests that are not held out.

    Args:
        rows: from `pool`; all but those that were cached to their very end count, which compute nothing.
        clock: column of the times.

    Raises:
        ValueError: too few requests.
    """
    computing = rows[rows.flops_left > 0]
    held = computing.held_out.to_numpy()
    if computing.shape[0] < _LEAST or held.all() or not held.any():
        raise ValueError(f"{computing.shape[0]} requests, expected at least {_LEAST}")
    flops = computing.flops_left.to_numpy(np.float64)
    restored = computing.restored_bytes.to_numpy(np.float64)
    restore = computing.restore_seconds.to_numpy(np.float64)
    seconds = computing[clock].to_numpy(np.float64)
    time = fit_prefill_time(flops[~held], restored[~held], restore[~held], seconds[~held])
    errors = relative_errors(time.seconds_of(flops[held], restored[held]), seconds[held])
    return Fit(
        clock, time, int((~held).sum()), int(held.sum()),
        float(np.median(errors)), float(np.quantile(errors, 0.95)),
    )  # fmt: skip


def with_predictions(rows: pd.DataFrame, fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Return the requests with `predicted_ttft` and `predicted_ttft_cpu`, seconds."""
    flops = rows.flops_left.to_numpy(np.float64)
    restored = rows.restored_bytes.to_numpy(np.float64)
    return rows.assign(
        **{
            f"predicted_{clock}": fit.time.seconds_of(flops, restored)
            for clock, fit in fits.items()
        }
    )


def by_policy(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row per policy: hit rate, FLOPs saved, TTFT measured and predicted, logits compared."""
    table = []
    for policy, its in rows.groupby("policy", sort=False):
        compared = its[its.logit_spread.notna()]
        table.append(
            {
                "policy": str(policy),
                "token_hit_rate": float(its.reused_tokens.sum() / its.input_tokens.sum()),
                "flops_saved": float(its.flops_saved.sum() / its.flops_total.sum()),
                "mean_ttft": float(its.ttft.mean()),
                "median_ttft": float(its.ttft.median()),
                "p95_ttft": float(its.ttft.quantile(0.95)),
                "predicted_mean_ttft": float(its.predicted_ttft.mean()),
                "mean_ttft_cpu": float(its.ttft_cpu.mean()),
                "compared": len(compared),
                "max_logit_error": float(compared.logit_error.max()) if len(compared) else None,
                "max_relative_logit_error": float(
                    (compared.logit_error / compared.logit_spread).max()
                )
                if len(compared)
                else None,
            }
        )
    return table
