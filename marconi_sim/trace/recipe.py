"""Recipes: `traces/NAME.toml` says what a trace is, when its requests arrive and how it was made.

    title = "SWE-agent on SWE-bench Lite"
    description = "..."
    data = "data/swebench.parquet"        # the compiled trace, relative to the recipe
    source = "where the sessions come from"
    licence = "..."
    synthetic = false
    caveats = ["what a reader of a figure must know"]
    capacity = "60GB"                     # of the cache, where the user names none

    [arrivals]                            # fields of marconi_sim.trace.arrivals.Arrivals
    start = "fixed"
    gap = "response-time"

    [policy_defaults.marconi]             # parameters of a policy that fit this trace
    multiplier = 15

    [build]                               # how the data was made; options as in ImportOptions
    format = "messages"
    source_file = "..."
    source_sha256 = "..."
    tokenizer = "name sha256:0123456789ab"

Every key is checked: an unknown key or a value of another type is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.base.toml_document import Document
from marconi_sim.base.units import parse_bytes
from marconi_sim.trace.arrivals import Arrivals
from marconi_sim.trace.importing.format import ImportOptions

_TEXTS = ("title", "description", "data", "source", "licence", "capacity")
_TABLES = ("arrivals", "policy_defaults", "build")
_BUILD_TEXTS = ("format", "source_file", "source_sha256", "tokenizer")


@dataclass(frozen=True)
class Build:
    """How a trace was made.

    Attributes:
        format: the name of the source's format.
        source_file, source_sha256: name and hash of the source.
        tokenizer: identity of the tokenizer, see `marconi_sim.trace.importing.tokenizers`; None for a source
            of tokens.
        options: the other options, as `ImportOptions` fields.
    """

    format: str
    source_file: str
    source_sha256: str
    tokenizer: str | None = None
    options: ImportOptions = field(default_factory=ImportOptions)


@dataclass(frozen=True)
class Recipe:
    """One checked recipe.

    Attributes:
        name: the file's name without `.toml`.
        path: the recipe itself.
        data: the compiled trace.
        synthetic: whether the requests were generated rather than observed.
        capacity: bytes.
        policy_defaults: policy -> its parameters for this trace.
        build: None if the recipe does not tell.
    """

    name: str
    path: Path
    title: str
    description: str
    data: Path
    source: str
    licence: str
    synthetic: bool
    capacity: int
    arrivals: Arrivals
    caveats: tuple[str, ...] = ()
    policy_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    build: Build | None = None


def _arrivals(document: Document) -> Arrivals:
    table = document.table("arrivals")
    table.check_keys(f.name for f in fields(Arrivals))
    for key in ("start", "gap"):
        table.take(key, str)
    try:
        return Arrivals(**table.values)
    except UsageError as error:
        key = str(error).split(" ", 1)[0]
        raise UserError(f"{table.place(key)}: [arrivals] {error}") from error


def _build(document: Document) -> Build | None:
    if "build" not in document.values:
        return None
    table = document.table("build")
    kinds = {f.name: bool if f.name == "shared_heads" else int for f in fields(ImportOptions)}
    del kinds["tokenizer"]
    table.check_keys([*_BUILD_TEXTS, *kinds])
    for key in _BUILD_TEXTS:
        if key != "tokenizer" or key in table.values:
            table.take(key, str)
    options = {key: table.take(key, kinds[key]) for key in table.values if key in kinds}
    return Build(
        **{key: table.values[key] for key in _BUILD_TEXTS if key in table.values},
        options=ImportOptions(**options),
    )


def _policy_defaults(document: Document) -> dict[str, dict[str, Any]]:
    table = document.values.get("policy_defaults", {})
    if not isinstance(table, dict) or not all(isinstance(t, dict) for t in table.values()):
        raise UserError(
            f"{document.place('policy_defaults')}: policy_defaults: expected tables"
            " [policy_defaults.NAME] of parameters"
        )
    return table


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        UserError: it cannot be read, is not TOML, lacks a key, or has an unknown key or a value of
            the wrong type; the message names the line where it can.
    """
    document = Document(path, "a recipe")
    values = document.values
    document.check_keys([*_TEXTS, "synthetic", "caveats", *_TABLES])
    texts = {key: document.take(key, str) for key in _TEXTS}
    caveats = values.get("caveats", [])
    if not isinstance(caveats, list) or not all(isinstance(c, str) for c in caveats):
        raise UserError(f"{document.place('caveats')}: caveats: expected a list of texts")
    try:
        capacity = parse_bytes(texts.pop("capacity"))
    except UsageError as error:
        raise UserError(f"{document.place('capacity')}: {error}") from error
    return Recipe(
        name=path.stem,
        path=path,
        data=path.parent / texts.pop("data"),
        synthetic=document.take("synthetic", bool),
        caveats=tuple(caveats),
        capacity=capacity,
        arrivals=_arrivals(document),
        policy_defaults=_policy_defaults(document),
        build=_build(document),
        **texts,
    )
