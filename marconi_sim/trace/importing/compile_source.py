"""From a source file to a compiled trace that says what it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.build import TraceBuilder
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.formats import Format, ImportOptions, format_named
from marconi_sim.trace.recipe import Recipe

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


def _rebuilt_tokenizer(recipe: Recipe, given: str | None) -> str | None:
    """Return what to load as tokenizer, after checking that it is the one that the recipe names."""
    assert recipe.build is not None
    wanted = recipe.build.tokenizer
    if wanted is None:
        if given is not None:
            raise UsageError(f"tokenizer {given}: trace '{recipe.name}' is built without one")
        return None
    from marconi_sim.trace.importing.tokenizers import load_tokenizer

    name, _, hashed = wanted.partition(" ")
    if given is None and name not in ("bytes", "mistral-v1"):
        raise UsageError(
            f"trace '{recipe.name}': built with the tokenizer '{wanted}', which is not shipped;"
            " give its file with --tokenizer"
        )
    chosen = name if given is None else given
    identity = load_tokenizer(chosen).identity
    if identity.partition(" ")[2] != hashed:
        raise UserError(
            f"tokenizer {chosen}: is '{identity}', but '{recipe.name}' is built with '{wanted}'"
        )
    return chosen


def build_trace(recipe: Recipe, source: Path, tokenizer: str | None = None) -> Trace:
    """Make a recipe's trace again from its source; the caller saves it (`compiled.save`).

    Args:
        recipe: with a [build] table.
        source: the file or directory that the recipe names.
        tokenizer: as `ImportOptions.tokenizer`; may be left out if the recipe's tokenizer has a
            name.

    Raises:
        UsageError: the recipe does not say how its trace was made, or the tokenizer is missing.
        UserError: the source or the tokenizer is not the one that the recipe names.
    """
    if recipe.build is None:
        raise UsageError(f"{recipe.path}: no [build], so its trace cannot be built again")
    chosen = format_named(recipe.build.format, recipe.build.options)
    options = replace(recipe.build.options, tokenizer=_rebuilt_tokenizer(recipe, tokenizer))
    found = source_sha256(source)
    if found != recipe.build.source_sha256:
        raise UserError(
            f"{source}: SHA-256 {found[:12]}..., but '{recipe.name}' is built from"
            f" {recipe.build.source_file} with {recipe.build.source_sha256[:12]}...;"
            " use 'marconi-sim trace import' for other data"
        )
    provenance = {
        "title": recipe.title,
        "source": recipe.source,
        "licence": recipe.licence,
        "synthetic": recipe.synthetic,
        "caveats": list(recipe.caveats),
        "source_file": recipe.build.source_file,
        "source_sha256": found,
    }
    return compile_source(source, chosen, options, provenance)
