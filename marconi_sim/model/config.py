"""Keys of a Hugging Face configuration, with the mistakes said in one line."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marconi_sim.base.errors import UserError
from marconi_sim.model.paper import LARGEST
from marconi_sim.model.storage import DTYPES

FULL, LINEAR = "full_attention", "linear_attention"
_OLD_NAMES = {"attention": FULL, "mamba": LINEAR, "conv": LINEAR}
REQUIRED: Any = object()  # the default of a key that has none
_LARGEST_RATIO = 1024
_WORDS = reprlib.Repr()
_WORDS.maxstring = _WORDS.maxother = _WORDS.maxlong = 80


def shown(value: Any) -> str:
    """Return a value of a configuration for a message: as Python writes it, on one line, cut where it is long."""
    return _WORDS.repr(value)


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
        return self.values.get(self._with_value(names))

    def _with_value(self, names: Sequence[str]) -> str:
        """Return the first of these keys that has a value; the first of all if none has."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def _missing(self, names: Sequence[str]) -> UserError:
        others = f" (or {' or '.join(names[1:])})" if names[1:] else ""
        return self.problem(f"no key '{names[0]}'{others}; a {self.family} model needs it")

    def number(self, *names: str, default: Any = REQUIRED, low: int = 1) -> Any:
        """Return the whole number under the first of these keys that has a value, or the default.

        Raises:
            UserError: no value and no default, or not a whole number of at least `low`.
        """
        value = self.get(*names)
        if value is None:
            if default is REQUIRED:
                raise self._missing(names)
            return default
        if type(value) is not int or not low <= value <= LARGEST:
            raise self.problem(
                f"{self._with_value(names)} = {shown(value)}, expected a whole number from {low} to {LARGEST}"
            )
        return value

    def derived(self, name: str, value: int, formula: str) -> int:
        """Return what stands for a key that has no value.

        Args:
            name: the key.
            value: what it comes to.
            formula: how, in the names of other keys.

        Raises:
            UserError: not a whole number that the key could have.
        """
        if not 1 <= value <= LARGEST:
            raise self.problem(
                f"{name} comes out as {value} ({formula}), expected a whole number from 1 to {LARGEST}"
            )
        return value

    def ratio(self, name: str, default: float) -> float:
        """Return the number under this key, or the default.

        Raises:
            UserError: not a number above 0, or too large a one.
        """
        value = self.get(name)
        if value is None:
            return default
        is_number = type(value) in (int, float) and math.isfinite(value)
        if not is_number or not 0 < value <= _LARGEST_RATIO:
            raise self.problem(
                f"{name} = {shown(value)}, expected a number above 0, at most {_LARGEST_RATIO}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return the truth value under this key, or the default.

        Raises:
            UserError: neither true nor false.
        """
        value = self.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.problem(f"{name} = {shown(value)}, expected true or false")
        return value

    def text(self, name: str) -> str | None:
        """Return the text under this key, None if it has no value.

        Raises:
            UserError: not a text, or an empty one.
        """
        value = self.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.problem(f"{name} = {shown(value)}, expected a text")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return the object under this key, an empty one if it has no value.

        Raises:
            UserError: not an object.
        """
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.problem(f"{name} = {shown(value)}, expected an object")
        return value

    def indices(self, name: str, layers: int, first: int = 0) -> list[int] | None:
        """Return the numbers of layers under this key, None if it has no value.

        Args:
            name: the key.
            layers: how many layers the model has.
            first: the number of the first of them.

        Raises:
            UserError: not a list of whole numbers from `first` to `first` + `layers` - 1, each at most once.
        """
        value = self.get(name)
        if value is None:
            return None
        last = first + layers - 1
        if not isinstance(value, list | tuple):
            raise self.problem(
                f"{name} = {shown(value)}, expected a list of numbers of layers from {first} to {last}"
            )
        for one in value:
            if type(one) is not int or not first <= one <= last:
                raise self.problem(
                    f"{name}: {shown(one)}, expected the number of a layer from {first} to {last}"
                )
        if len(set(value)) < len(value):
            repeated = next(one for one in value if value.count(one) > 1)
            raise self.problem(f"{name}: layer {repeated} is in it more than once")
        return list(value)

    def check_length(self, name: str, kinds: int) -> None:
        """Raise if the layers that a key lists are not as many as `num_hidden_layers`, where that has a value.

        Raises:
            UserError: says both.
        """
        layers = self.number("num_hidden_layers", default=kinds)
        if layers != kinds:
            raise self.problem(
                f"{name} lists {kinds} layers, num_hidden_layers = {layers}: expected as many"
            )

    def layer_types(self, *names: str, allowed: Sequence[str] = (FULL, LINEAR)) -> list[str]:
        """Return what each layer is, in today's words.

        Raises:
            UserError: no such key, a layer of a kind that is not allowed here, or not `num_hidden_layers` of them.
        """
        value = self.get(*names)
        if value is None:
            raise self._missing(names)
        name = self._with_value(names)
        if not isinstance(value, list | tuple) or not value:
            raise self.problem(f"{name} = {shown(value)}, expected a list of kinds of layers")
        found = [_OLD_NAMES.get(one, one) if isinstance(one, str) else "" for one in value]
        for given, one in zip(value, found, strict=True):
            if one not in allowed:
                raise self.problem(
                    f"{name}: a layer {shown(given)}; the layers of a {self.family} model that can be counted:"
                    f" {', '.join(allowed)}"
                )
        self.check_length(name, len(found))
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
            raise self.problem(
                f"{self._with_value(names)} = {shown(value)}, allowed: {', '.join(DTYPES)}"
            )
        return word

    def refuse_window(self) -> None:
        """Raise if attention sees a window only: its KV is dropped behind the window, which no policy here does.

        Raises:
            UserError: says so.
        """
        window = self.get("sliding_window")
        if window is not None and self.flag("use_sliding_window", True):
            raise self.problem(
                f"sliding_window = {shown(window)}: attention with a sliding window is not supported, its KV cannot"
                " be reused at any depth; if the model does not use it, set the key to null"
            )
