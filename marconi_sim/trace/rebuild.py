"""From a recipe and the source that it names to its trace, made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.compile_source import compile_source, source_sha256
from marconi_sim.trace.importing.formats import format_named
from marconi_sim.trace.importing.tokenizers import load_tokenizer
from marconi_sim.trace.recipe import Recipe


def _rebuilt_tokenizer(recipe: Recipe, given: str | None) -> str | None:
    """Return what to load as tokenizer, after checking that it is the one that the recipe names."""
    assert recipe.build is not None
    wanted = recipe.build.tokenizer
    if wanted is None:
        if given is not None:
            raise UsageError(f"tokenizer {given}: trace '{recipe.name}' is built without one")
        return None
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
