"""Options that several commands share, under one name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marconi_sim.base.errors import UsageError

if TYPE_CHECKING:
    from marconi_sim.model import Model

catalogue_option: Callable[[Any], Any] = click.option(
    "--catalogue",
    "search",
    multiple=True,
    metavar="FOLDER",
    help="A folder of your own with traces/, policies/ or experiments/, searched after the shipped ones. Repeatable;"
    " the environment variable MARCONI_SIM_PATH adds more.",
)
json_option: Callable[[Any], Any] = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on stdout and nothing else there.",
)

model_option: Callable[[Any], Any] = click.option(
    "--model-option",
    "model_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value of an option of the model: kv_dtype=fp8, tensor_parallel=2 (docs/models.md). Repeatable.",
)

jobs_option: Callable[[Any], Any] = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Worker processes; default one per core.",
)


def path_option(*names: str, metavar: str = "FILE", **more: Any) -> Callable[[Any], Any]:
    """Return an option whose value is a path."""
    return click.option(*names, type=click.Path(path_type=Path), metavar=metavar, **more)


def figures_folder_option(help_text: str) -> Callable[[Any], Any]:
    """Return the option for the folder of `marconi-sim figures`, where several commands find finished results."""
    return path_option(
        "-o", "--out", "folder", metavar="FOLDER", default=Path("figures"), show_default=True, help=help_text
    )  # fmt: skip


def parse_pairs(option: str, texts: tuple[str, ...], example: str) -> dict[str, str]:
    """Return what a repeatable option NAME=VALUE says.

    Raises:
        UsageError: it is not written like that, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {text}: write it as NAME=VALUE, e.g. {option} {example}")
        if name in found:
            raise UsageError(f"{option} {text}: '{name}' is given twice")
        found[name] = value
    return found


def chosen_model(name: str, texts: tuple[str, ...]) -> Model:
    """Return a model by its name or file, with the options that `--model-option` gives.

    Raises:
        UserError: as `load_model` and `vary`.
    """
    from marconi_sim.model import load_model, vary

    options = parse_pairs("--model-option", texts, "kv_dtype=fp8")
    numbers = {key: int(text) if text.isdecimal() else text for key, text in options.items()}
    return vary(load_model(name), numbers)
