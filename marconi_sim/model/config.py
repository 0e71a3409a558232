"""Keys of a Hugging Face configuration, with the mistakes said in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marconi_sim.errors import UserError
from marconi_sim.model.paper import LARGEST
from marconi_sim.model.storage import DTYPES

FULL, LINEAR = "full_attention", "linear_attention"
_OLD_NAMES = {"attention": FULL, "mamba": LINEAR, "conv": LINEAR}
_REQUIRED: Any = object()


class Config:
    """A configuration while it is read.

    Attributes:
        values: its keys.
        place: where it came from, for messages.
        family: its `model_type`.
        notes: what had to be assumed or left out, a sentence each.
    """

    def __init__(self, values: Mapping[str, Any], place: str | Path, family: str) -> None:
        self.values = values
        self.place = place
        self.family = family
        self.notes: list[str] = []

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return the configuration with these values instead of its own; the notes are shared."""
        other = Config({**self.values, **values}, self.place, self.family)
        other.notes = self.notes
        return other

    def problem(self, text: str) -> UserError:
        """Return an error that names the place."""
        return UserError(f"{self.place}: {text}")

    def get(self, *names: str) -> Any:
        """Return the value of the first of these keys that has one; None if none has."""
        return next((self.values[n] for n in names if self.values.get(n) is not None), None)

    def _missing(self, names: Sequence[str]) -> UserError:
        others = f" (or {' or '.join(names[1:])})" if names[1:] else ""
        return self.problem(f"no key '{names[0]}'{others}; a {self.family} model needs it")

    def number(self, *names: str, default: Any = _REQUIRED, low: int = 1) -> Any:
        """Return the whole number under the first of these keys that has a value, or the default.

        Raises:
            UserError: no value and no default, or not a whole number of at least `low`.
        """
        value = self.get(*names)
        if value is None:
            if default is _REQUIRED:
                raise self._missing(names)
            return default
        if type(value) is not int or not low <= value <= LARGEST:
            raise self.problem(
                f"{names[0]} = {value!r}, expected a whole number from {low} to {LARGEST}"
            )
        return value

    def layer_types(self, *names: str, allowed: Sequence[str] = (FULL, LINEAR)) -> list[str]:
        """Return what each layer is, in today's words.

        Raises:
            UserError: no such key, or a layer of a kind that is not allowed here.
        """
        value = self.get(*names)
        if value is None:
            raise self._missing(names)
        if not isinstance(value, list | tuple) or not value:
            raise self.problem(f"{names[0]} = {value!r}, expected a list of kinds of layers")
        found = [_OLD_NAMES.get(one, str(one)) for one in value]
        for given, one in zip(value, found, strict=True):
            if one not in allowed:
                raise self.problem(
                    f"{names[0]}: a layer '{given}'; the layers of a {self.family} model that can be counted:"
                    f" {', '.join(allowed)}"
                )
        return found

    def dtype(self, *names: str) -> str | None:
        """Return the dtype under the first of these keys that has a value, None if none has.

        Raises:
            UserError: not a dtype whose size is known.
        """
        value = self.get(*names)
        if value is None or value == "auto":
            return None
        word = str(value).removeprefix("torch.")
        if word not in DTYPES:
            raise self.problem(f"{names[0]} = '{value}', allowed: {', '.join(DTYPES)}")
        return word

    def refuse_window(self) -> None:
        """Raise if attention sees a window only: its KV is dropped behind the window, which no policy here does.

        Raises:
            UserError: says so.
        """
        window = self.get("sliding_window")
        if window is not None and self.values.get("use_sliding_window", True):
            raise self.problem(
                f"sliding_window = {window}: attention with a sliding window is not supported, its KV cannot be reused"
                " at any depth; if the model does not use it, set the key to null"
            )
