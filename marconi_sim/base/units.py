"""Numbers as people write them: `60GB` is 60e9 bytes, `60GiB` is 60 * 2**30 bytes."""

from __future__ import annotations

import re
from decimal import Decimal

from marconi_sim.base.errors import UsageError

UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_ALLOWED = "a positive number of bytes with an optional unit: B, KB MB GB TB (powers of 1000) or KiB MiB GiB TiB"


def parse_bytes(text: str) -> int:
    """Return the number of bytes that `text` says, e.g. `1500`, `1500B`, `1.5GB`, `40GiB`; fractions round down.

    Raises:
        UsageError: not a number with a known unit, or less than one byte.
    """
    match = _PATTERN.fullmatch(text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise UsageError(f"capacity '{text}': not understood; write {_ALLOWED}, e.g. 60GB")
    value = int(Decimal(match[1]) * unit)
    if value < 1:
        raise UsageError(
            f"capacity '{text}': must be at least one byte; write {_ALLOWED}, e.g. 60GB"
        )
    if value >= 2**63:
        raise UsageError(
            f"capacity '{text}': must be below 2^63 bytes; write {_ALLOWED}, e.g. 60GB"
        )
    return value


def format_bytes(count: float) -> str:
    """Return a short decimal form with four significant digits: `26.79 MB`, `1.5 GB`, `512 B`."""
    for unit in ("TB", "GB", "MB", "KB"):
        if abs(count) >= UNITS[unit]:
            return f"{count / UNITS[unit]:.4g} {unit}"
    return f"{count:.4g} B"


def counted(count: int, noun: str) -> str:
    """Return `1 session`, `2,361 sessions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
