"""What commands print on stdout: results, and nothing else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click


def print_json(value: Any) -> None:
    """Print one JSON object."""
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


@contextlib.contextmanager
def policies_at_work() -> Iterator[TextIO]:
    """Send to stderr what is printed inside: a policy file is code and may print when it is loaded or run.

    Yields the true stdout, for results that come while policies work.
    """
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield stdout
