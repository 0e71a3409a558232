"""Options that several commands share, under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

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
