"""The formats that `marconi-sim trace import` reads, by name, and which one a file looks like.

One module of `marconi_sim/trace/importing/readers/` describes one format in a constant `FORMAT`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields
from pathlib import Path

from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.trace.importing import readers
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import first_bytes


def formats() -> dict[str, Format]:
    """Return every format by name, in alphabetical order."""
    found = {}
    for module in sorted(pkgutil.iter_modules(readers.__path__), key=lambda m: m.name):
        description = importlib.import_module(f"{readers.__name__}.{module.name}").FORMAT
        found[description.name] = description
    return dict(sorted(found.items()))


def format_named(name: str, options: ImportOptions) -> Format:
    """Return a format after checking that it honours every option that was given.

    Raises:
        UsageError: unknown format, or an option that means nothing to it.
    """
    known = formats()
    if name not in known:
        raise UsageError(f"format '{name}': unknown{did_you_mean(name, known)}")
    chosen = known[name]
    for field in fields(options):
        if getattr(options, field.name) is not None and field.name not in chosen.options:
            allowed = (
                ", ".join("--" + o.replace("_", "-") for o in sorted(chosen.options)) or "none"
            )
            raise UsageError(
                f"--{field.name.replace('_', '-')}: means nothing to format '{name}'; its options: {allowed}"
            )
    return chosen


def detect_format(path: Path) -> Format:
    """Return the one format that a file or directory looks like.

    Raises:
        UserError: there is nothing at `path`, or nothing in it.
        UsageError: no format fits, or more than one does.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or directory (trace)")
    start = first_bytes(path)
    if path.is_file() and not start.strip():
        raise UserError(f"{path}: empty or damaged, expected a trace")
    fitting = [f.name for f in formats().values() if f.matches(path, start)]
    if len(fitting) == 1:
        return formats()[fitting[0]]
    what = f"could be {' or '.join(fitting)}" if fitting else "none of the known formats"
    if path.is_dir() and not fitting:
        raise UsageError(
            f"{path}: is a directory that looks like none of the known formats; give a file, or name the format with"
            f" 'marconi-sim trace import --format', one of: {', '.join(formats())}"
        )
    begins = f", begins with {start[:30]!r}" if path.is_file() else ""
    names = ", ".join(fitting or formats())
    raise UsageError(
        f"{path}: {what}{begins}; name it with 'marconi-sim trace import --format', one of: {names}"
    )
