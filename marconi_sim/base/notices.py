"""What a user should know but did not ask for: one line on stderr, never on stdout."""

from __future__ import annotations

import sys


def notice(text: str) -> None:
    """Print `notice: text` on stderr."""
    sys.stderr.write(f"notice: {text}\n")


def warn(text: str) -> None:
    """Print `warning: text` on stderr."""
    sys.stderr.write(f"warning: {text}\n")
