"""The formats that `marconi-sim trace import` reads: what each is called, what it looks like, which options it takes.

One module of `marconi_sim/trace/readers/` describes one format in a constant `FORMAT`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.lines import first_bytes


@dataclass(frozen=True)
class ImportOptions:
    """How to turn a source into requests. None means: as the format's documentation says.

    Attributes:
        tokenizer: `bytes`, `mistral-v1`, or the path of a `tokenizer.json` or a SentencePiece `.model` file.
        keep_observations: keep only the last N observations (tool or environment messages) of the history of an
            agent session; older ones are dropped, the model's answers stay.
        max_tokens: a session ends before the first request whose input would be longer.
        max_turns: a session ends after this many requests.
        min_rounds: sessions with fewer requests are left out.
        first_sessions: only the first N sessions, in order of their names.
        block_size: tokens per block of a trace of block hashes.
        shared_heads: for block traces whose ids are local to a session: give sessions with equal tool and system
            prompt lengths a common head of that many tokens.
    """

    tokenizer: str | None = None
    keep_observations: int | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    min_rounds: int | None = None
    first_sessions: int | None = None
    block_size: int | None = None
    shared_heads: bool | None = None


@dataclass(frozen=True)
class Format:
    """One readable format.

    Attributes:
        name: as written after `--format`.
        summary: one line for `marconi-sim list formats`.
        options: the names of the `ImportOptions` it honours; giving another one is an error.
        matches: tells from a path (a file or a directory) and the first bytes of its (decompressed) content whether
            the format fits. Must not raise.
        read: (path, options, notes) -> requests in the order of the source, streamed. While it runs it writes into
            `notes` what a reader of the result must know: tokenizer, rules, counts of what was left out or inferred,
            and `block_size` where a symbol is more than a token.
    """

    name: str
    summary: str
    options: frozenset[str]
    matches: Callable[[Path, bytes], bool]
    read: Callable[[Path, ImportOptions, dict[str, Any]], Iterator[Request]]


def formats() -> dict[str, Format]:
    """Return every format by name, in alphabetical order."""
    from marconi_sim.trace.importing import readers

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
