"""Parameters of a policy: typed, with a unit, a default and a range, checked before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from marconi_sim.base.errors import UsageError

_WHOLE_BELOW = 2**53  # beyond, a float64 does not tell neighbours apart


def _plain(number: float) -> str:
    return (
        str(int(number)) if number == int(number) and abs(number) < _WHOLE_BELOW else f"{number:g}"
    )


@dataclass
class Parameter:
    """One parameter, declared as a class attribute of a policy; on an instance it reads as the value.

    Attributes:
        default: the value where the user gives none.
        help: one line.
        unit: `tokens`, `bytes`, `seconds` ...; empty for a number without a unit.
        low, high: the range of a number, both ends included.
        integer: whether a number must be whole.
        words: what may stand instead of a number.
        numeric: false if only the words are allowed.
    """

    default: float | str
    help: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    integer: bool = False
    words: tuple[str, ...] = ()
    numeric: bool = True
    name: str = field(default="", init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        if name.startswith("_") or "__" in name:
            raise TypeError(
                f"{owner.__name__}.{name}: a parameter's name has no leading or double underscore"
            )
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.params[self.name]

    @property
    def allowed(self) -> str:
        """What may be written, in words: `a number from 0 up or 'bootstrap'`."""
        kind = "a whole number" if self.integer else "a number"
        if self.low > -math.inf and self.high < math.inf:
            kind += f" from {_plain(self.low)} to {_plain(self.high)}"
        elif self.low > -math.inf:
            kind += f" from {_plain(self.low)} up"
        elif self.high < math.inf:
            kind += f" up to {_plain(self.high)}"
        return " or ".join([kind] * self.numeric + [f"'{word}'" for word in self.words])

    def check(self, value: Any, policy: str) -> float | int | str:
        """Return the value as a number or a word; text is read as it would be from the command line.

        Raises:
            UsageError: not allowed.
        """
        problem = UsageError(
            f"parameter {self.name}={value} of policy '{policy}': not allowed;"
            f" give {self.allowed} (default {self.default})"
        )
        if isinstance(value, str) and value in self.words:
            return value
        if isinstance(value, bool) or not self.numeric:
            raise problem
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise problem from None
        if not math.isfinite(number) or not self.low <= number <= self.high:
            raise problem
        if not self.integer:
            return number
        if number != int(number) or abs(number) >= _WHOLE_BELOW:
            raise problem
        return int(number)
