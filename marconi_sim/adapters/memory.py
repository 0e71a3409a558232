"""Whether a model and its cache fit into the memory that is free, asked before either is made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from marconi_sim.base.errors import UserError
from marconi_sim.base.units import format_bytes

_ROOM = 1.25  # weights, and what a prefill computes beside them
_COPIES = 4  # of the longest sequence's KV: it is joined, continued and cut into pieces


def _number_in(path: str) -> int | None:
    try:
        text = Path(path).read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _free_in_group() -> int | None:
    """Return what a container's limit leaves (Linux, cgroup 2); None without one."""
    limit = _number_in("/sys/fs/cgroup/memory.max")
    used = _number_in("/sys/fs/cgroup/memory.current")
    return None if limit is None or used is None else max(0, limit - used)


def free_bytes(device: torch.device) -> int:
    """Return the bytes that can be had on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    found = (
        re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text()) if meminfo.exists() else None
    )
    free = (
        int(found[1]) * 1024
        if found
        else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )
    group = _free_in_group()
    return free if group is None else min(free, group)


def _check(device: torch.device, needed: int, what: str) -> None:
    free = free_bytes(device)
    if needed > free:
        raise UserError(
            f"device {device}: {format_bytes(free)} free, at least {format_bytes(needed)} needed for {what}"
        )


def check_weights(device: torch.device, parameters: int, dtype: str) -> None:
    """Raise if a model's weights do not fit.

    Raises:
        UserError: says how much is free and how much is needed.
    """
    needed = int(_ROOM * parameters * getattr(torch, dtype).itemsize)
    _check(
        device, needed, f"{parameters / 1e9:.3g} G parameters in {dtype}; use a smaller --backend"
    )


def check_cache(device: torch.device, capacity: int, kv_bytes: int, longest: int) -> None:
    """Raise if a cache and the longest sequence do not fit beside what is there.

    Args:
        device: where they go.
        capacity: bytes of the cache.
        kv_bytes: of one token.
        longest: tokens of the longest sequence.

    Raises:
        UserError: says how much is free and how much is needed.
    """
    needed = capacity + _COPIES * kv_bytes * longest
    what = f"a cache of {format_bytes(capacity)} and a sequence of {longest:,} tokens"
    _check(device, needed, f"{what}; use a smaller --capacity or --longest")


@contextmanager
def running_out_told(device: torch.device) -> Iterator[None]:
    """Turn running out of memory into one line; no estimate is right for every model.

    Raises:
        UserError: the block ran out of memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # torch.OutOfMemoryError is a RuntimeError; on a CPU it is only the text that tells.
        told = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not told and "can't allocate memory" not in str(error):
            raise
        raise UserError(
            f"device {device}: out of memory; use a smaller --capacity, --longest or --backend"
        ) from error
