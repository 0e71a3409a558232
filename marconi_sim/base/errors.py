"""What a user did wrong, said in one line.

Every mistake that can come from outside (an option, a file, a line of a file) is raised as a `UserError`; the command
line prints it without a traceback and exits with its status. Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the input. The message is one line: the value, the place, what is allowed, what to do.

    `exit_status` is 1 for data that cannot be used and 2 for a wrong use of the command or of the Python API.
    """

    exit_status = 1


class UsageError(UserError):
    """A wrong option, name or parameter (exit status 2)."""

    exit_status = 2


def check_argument(name: str, value: object, kinds: tuple[type, ...], allowed: str) -> None:
    """Raise if an argument of the Python API is of none of the types `kinds`; `allowed` says them in words.

    Raises:
        UsageError: names the argument, its value and what is allowed.
    """
    if not isinstance(value, kinds):
        shown = textwrap.shorten(repr(value), 60, placeholder="...")
        raise UsageError(f"{name} {shown}: of type {type(value).__name__}, expected {allowed}")


def one_line(error: UserError) -> str:
    """Return the message without line breaks, which a file's name or a quoted reason may have."""
    return " ".join(str(error).splitlines())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'? known: a, b, c"` for a message about an unknown name."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} known: {', '.join(names) if names else 'none'}"
