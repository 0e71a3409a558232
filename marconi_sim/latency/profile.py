"""A fitted latency model as a file: what a model on a device takes for a prefill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from marconi_sim.base.files import whole_file
from marconi_sim.latency.fit import PrefillTime


def _value(value: str | float) -> str:
    # JSON's texts and numbers are TOML's too, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_profile(time: PrefillTime, facts: Mapping[str, str | float], path: Path) -> None:
    """Write a TOML file with the fitted terms, and what they were measured on.

    Args:
        time: the terms.
        facts: model, device, accuracy and the like.
        path: of the file.

    Raises:
        UserError: it cannot be written.
    """
    lines = [
        "# Seconds of a prefill = overhead_seconds + FLOPs left x seconds_per_flop",
        "#                        + bytes of the restored prefix x seconds_per_restored_byte",
        f"overhead_seconds = {time.overhead!r}",
        f"seconds_per_flop = {time.per_flop!r}",
        f"seconds_per_restored_byte = {time.per_restored_byte!r}",
        "",
        "[measured]",
        *(f"{key} = {_value(value)}" for key, value in facts.items()),
    ]
    with whole_file(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", "utf-8")
