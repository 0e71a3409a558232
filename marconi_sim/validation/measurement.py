"""`validate-ttft`: a reduced workload replayed on a model under several policies, and the files that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from marconi_sim.adapters.backend import Backend
from marconi_sim.adapters.load import model_of, open_backend
from marconi_sim.adapters.memory import check_cache, running_out_told
from marconi_sim.base.errors import UsageError
from marconi_sim.base.units import format_bytes, parse_bytes
from marconi_sim.base.version import __version__
from marconi_sim.figures.foot import foot_of_traces
from marconi_sim.latency.profile import write_profile
from marconi_sim.model import Model
from marconi_sim.policy.base import Policy
from marconi_sim.simulation.result import write_table
from marconi_sim.simulation.simulate import choose_policy
from marconi_sim.trace.export.reduce import reduce_workload
from marconi_sim.trace.load import Workload, load_trace
from marconi_sim.validation.lockstep import replay_in_lockstep
from marconi_sim.validation.plot import plot_validation
from marconi_sim.validation.replaying import unbounded_bytes
from marconi_sim.validation.ttft import CLOCKS, Fit, by_policy, fit_requests, pool, with_predictions

LONGEST_ON_CPU = 2048  # tokens
_WARM_UP = 512  # tokens
_FACTS = (  # of the summary, that a profile tells
    "trace", "requests", "backend", "hardware", "dtype", "kv_bytes_per_token", "state_bytes", "capacity_bytes",
    "repeats", "seed", "torch", "version",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is replayed on what.

    Attributes:
        workload: reduced.
        policies: what it is replayed under.
        backend: the model.
        model: its accounting.
        capacity: bytes.
        hardware: the device's name, and threads.
        repeats: how often everything is replayed; the fastest times count.
        compare: requests whose logits are compared.
        seed: of the tokens.
    """

    workload: Workload
    policies: tuple[Policy, ...]
    backend: Backend
    model: Model
    capacity: int
    hardware: str
    repeats: int
    compare: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Measurement:
    """What came of it.

    Attributes:
        setting: what was replayed on what.
        rows: one row per policy and request, `OnModel.requests` with `policy`, `flops_left`, `held_out`,
            `predicted_ttft` and `predicted_ttft_cpu` (seconds).
        fits: clock -> latency model.
    """

    setting: Setting
    rows: pd.DataFrame
    fits: dict[str, Fit]

    @property
    def exact(self) -> bool:
        """Whether no compared logit is further off than the logits differ among themselves.

        Rounding in float32 and bfloat16 stays far below, a wrong state far above; `validate-exact` is the proof.
        """
        compared = self.rows[self.rows.logit_spread.notna()]
        return bool((compared.logit_error < compared.logit_spread).all())

    @property
    def waited(self) -> float:
        """Share of the wall clock that the processor spent on something else; 0 on a GPU."""
        if self.setting.backend.device.type != "cpu":
            return 0.0
        return max(0.0, 1 - float(self.rows.ttft_cpu.sum() / self.rows.ttft.sum()))

    def summary(self) -> dict[str, Any]:
        """Return what `validate-ttft --json` prints; plain Python values."""
        setting = self.setting
        return {
            "trace": setting.workload.name,
            "requests": setting.workload.requests,
            "backend": setting.backend.name,
            "hardware": setting.hardware,
            "dtype": setting.backend.storage["kv_dtype"],
            "kv_bytes_per_token": setting.model.kv_bytes,
            "state_bytes": setting.model.state_bytes,
            "capacity_bytes": setting.capacity,
            "repeats": setting.repeats,
            "seed": setting.seed,
            "torch": str(torch.__version__),
            "version": __version__,
            "exact": self.exact,
            "waited": self.waited,
            "policies": by_policy(self.rows),
            "fits": {
                clock: {
                    "overhead_seconds": fit.time.overhead,
                    "seconds_per_flop": fit.time.per_flop,
                    "seconds_per_restored_byte": fit.time.per_restored_byte,
                    "fitted": fit.fitted,
                    "held_out": fit.held_out,
                    "median_error": fit.median_error,
                    "p95_error": fit.p95_error,
                }
                for clock, fit in self.fits.items()
            },
        }

    def foot(self) -> list[str]:
        """Return the paragraphs below the figure."""
        setting = self.setting
        weights = "random weights" if setting.backend.random_weights else "weights of a checkpoint"
        times = "fastest of " + str(setting.repeats) if setting.repeats > 1 else "measured once"
        data, version = foot_of_traces([setting.workload], "marconi-sim validate-ttft")
        return [
            data + " Tokens are drawn at random, equal where the trace's sequences are equal.",
            f"Configuration: {setting.backend.name}, {setting.backend.storage['kv_dtype']}, {weights};"
            f" {setting.hardware}, torch {torch.__version__}; cache"
            f" {format_bytes(setting.capacity)}; {times};"
            " no queueing. Prediction: overhead + FLOPs left / rate + restored bytes / rate, fitted to every other"
            " prompt.",
            version,
        ]

    def write(self, folder: Path) -> None:
        """Write requests.parquet, profile.toml, ttft.pdf and ttft.png.

        Raises:
            UserError: they cannot be written.
        """
        folder.mkdir(exist_ok=True)
        write_table(
            pa.Table.from_pandas(self.rows, preserve_index=False), folder / "requests.parquet"
        )
        fit = self.fits["ttft"]
        summary = self.summary()
        facts: dict[str, str | float] = {key: summary[key] for key in _FACTS}
        facts |= {"held_out_median_error": fit.median_error, "held_out_p95_error": fit.p95_error}
        write_profile(fit.time, facts, folder / "profile.toml")
        title = "Time to first token on a real model: measured against predicted"
        plot_validation(self.rows, fit, title, self.foot(), folder)


def _warm_up(backend: Backend) -> None:
    """Prefill something once: what a library does on its first call only must not be measured."""
    tokens = torch.zeros(_WARM_UP, dtype=torch.int64)
    backend.prefill(tokens, 0, None, None, (1, _WARM_UP))


def _hardware(device: torch.device, threads: int) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"CPU, {threads} thread" + ("s" if threads > 1 else "")


def prepare(
    trace: str | Path,
    policies: Sequence[str],
    *,
    requests: int,
    longest: int | None,
    capacity: str | None,
    backend: str,
    device: str,
    dtype: str | None,
    threads: int,
    repeats: int,
    compare: int,
    seed: int,
    search: Iterable[str | Path] = (),
) -> Setting:
    """Load and reduce the trace, and make the model.

    Args:
        trace: a name in the catalogue or a file.
        policies: names in the catalogue or files; different ones.
        requests: only the first so many.
        longest: tokens that the longest input is scaled down to; None: LONGEST_ON_CPU on a CPU, else as it is.
        capacity: of each policy's cache, bytes; None: half of what a cache without limit would hold.
        backend: as `open_backend` names them.
        device: `cpu`, `cuda` ...
        dtype: of the weights; None: the backend's own.
        threads: of the CPU.
        repeats: how often everything is replayed; the fastest times count.
        compare: how many requests' logits are compared, evenly spread.
        seed: of tokens and weights.
        search: the user's catalogue folders.

    Raises:
        UsageError: a value that is not allowed.
        UserError: a file that cannot be used, or a model that does not fit the memory.
    """
    torch.set_num_threads(threads)
    search = tuple(search)
    whole = load_trace(trace, search=search)
    chosen = tuple(choose_policy(name, {}, whole, search) for name in policies)
    opened = open_backend(backend, device=device, dtype=dtype, seed=seed)
    if longest is None and opened.device.type == "cpu":
        longest = LONGEST_ON_CPU
    workload = reduce_workload(whole, requests, longest)
    model = model_of(opened)
    capacity_bytes = (
        parse_bytes(capacity) if capacity else max(1, unbounded_bytes(workload, model) // 2)
    )
    check_cache(
        opened.device, len(chosen) * capacity_bytes, model.kv_bytes, int(workload.trace.depth.max())
    )
    _warm_up(opened)
    spread = np.linspace(0, workload.requests - 1, min(compare, workload.requests))
    return Setting(
        workload, chosen, opened, model, capacity_bytes, _hardware(opened.device, threads), repeats,
        tuple(np.unique(spread.astype(int)).tolist()), seed,
    )  # fmt: skip


def measure(setting: Setting, advance: Callable[[int], None] = lambda _: None) -> Measurement:
    """Replay the workload under each policy and fit the latency model to all of them together.

    Raises:
        UsageError: a policy that cannot be followed, or too few requests for a fit.
        UserError: the device ran out of memory, or the model's bytes are not the simulator's.
    """
    workload = setting.workload
    with running_out_told(setting.backend.device):
        replays = replay_in_lockstep(
            workload, setting.policies, setting.model, setting.capacity, setting.backend,
            seed=setting.seed, compare=setting.compare, repeats=setting.repeats, advance=advance,
        )  # fmt: skip
    names = [policy.name for policy in setting.policies]
    runs = {name: replay.requests for name, replay in zip(names, replays, strict=True)}
    rows = pool(runs, workload.trace.input_node[workload.order])
    try:
        fits = {clock: fit_requests(rows, clock) for clock in CLOCKS}
    except ValueError as error:
        raise UsageError(
            f"--requests {setting.workload.requests}: too few to fit, all policies together ({error})"
        ) from error
    return Measurement(setting, with_predictions(rows, fits), fits)
