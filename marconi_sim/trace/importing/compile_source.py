"""From a source file to a compiled trace that says what it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import TraceBuilder
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.format import Format, ImportOptions

_CHUNK = 2**20


def source_sha256(source: Path) -> str:
    """Return the SHA-256 of a file, or of a directory: its files with their names, in order.

    Raises:
        UserError: there is nothing at `source`, or it may not be read.
    """
    if not source.exists():
        raise UserError(f"{source}: no such file or directory (source of a trace)")
    digest = hashlib.sha256()
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    try:
        for path in files:
            if source.is_dir():
                digest.update(
                    f"{path.relative_to(source).as_posix()}\0{path.stat().st_size}\0".encode()
                )
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def given_options(options: ImportOptions) -> dict[str, Any]:
    """Return the options that were given, but not the tokenizer: its value may be a local path."""
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name != "tokenizer" and getattr(options, field.name) is not None
    }


def compile_source(
    source: Path, chosen: Format, options: ImportOptions, provenance: Mapping[str, Any]
) -> Trace:
    """Read a source and compile it.

    The trace's provenance is `provenance`, the format, the options that were given, and what the
    reader noted. It holds no local path.

    Raises:
        UserError: the source cannot be used, or has no request in it.
    """
    notes: dict[str, Any] = {}
    builder: TraceBuilder | None = None
    for request in chosen.read(source, options, notes):
        if builder is None:
            builder = TraceBuilder(notes.get("block_size", 1))
        builder.add(request)
    if builder is None:
        raise UserError(
            f"{source}: no request in it ({_left_out(notes)});"
            f" check the options, or the format '{chosen.name}'"
        )
    return builder.finish(
        {**provenance, "format": chosen.name, "options": given_options(options), **notes}
    )


def _left_out(notes: Mapping[str, Any]) -> str:
    counts = [
        f"{name} {value}" for name, value in notes.items() if type(value) is int and value > 0
    ]
    return ", ".join(counts) or "nothing was left out"


def import_trace(
    source: Path, chosen: Format, options: ImportOptions, provenance: Mapping[str, Any]
) -> Trace:
    """Compile a source as `compile_source` does, and record the name and the SHA-256 of the source.

    Raises:
        UserError: as `compile_source`.
    """
    known = {"source_file": source.name, "source_sha256": source_sha256(source)}
    return compile_source(source, chosen, options, {**provenance, **known})
