"""Keys by which results are found again, and never by mistake.

A run's key is a hash of all that its result can depend on: the trace's content, which sessions and when, the model's
numbers, the capacity, the policy's file and parameters, and this package's own source.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import orjson

_PACKAGE = Path(__file__).parents[1]
_WITHOUT_EFFECT = ("_catalogue", "cli", "figures", "latency", "paper")


@functools.cache
def source_sha256() -> str:
    """Return a hash of this package's Python files: results of another version are not ours.

    What only draws or prints results is left out.
    """
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        if path.relative_to(_PACKAGE).parts[0] not in _WITHOUT_EFFECT:
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(*parts: Any) -> str:
    """Return a short hash of what these parts say."""
    text = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:16]
