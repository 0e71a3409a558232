"""The content of a Hugging Face config.json, which is not always strict JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file

# transformers 5 saves these floats as an object with one key; others write them bare, as Python's json does.
_TAG = "__float__"
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def decoded(value: Any) -> Any:
    """Return the value with every `{"__float__": "Infinity"}` in it (also `-Infinity`, `NaN`) as the float it means."""
    if isinstance(value, dict):
        if set(value) == {_TAG} and isinstance(value[_TAG], str) and value[_TAG] in _FLOATS:
            return _FLOATS[value[_TAG]]
        return {key: decoded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [decoded(one) for one in value]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a config.json; bare `Infinity` and `NaN` and a byte order mark are allowed.

    Raises:
        UserError: no such file, not JSON, or no object.
    """
    content = readable_file(path, "configuration of a model").read_bytes()
    try:
        values = decoded(json.loads(content))
    except RecursionError as error:
        raise UserError(f"{path}: not JSON of a configuration, it is nested too deeply") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a configuration, which is a JSON object, in braces")
    return values
