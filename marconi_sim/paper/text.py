"""How numbers are written in the table."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent: `12.3 %`."""
    return f"{100 * share:.{digits}f} %"


def change(relative: float) -> str:
    """Return a relative change in percent with its sign: `+12.3 %`."""
    return f"{100 * relative:+.1f} %".replace("-0.0 %", "0.0 %").replace("+0.0 %", "0.0 %")


def points(difference: float) -> str:
    """Return a difference of shares in points with its sign: `+1.2 points`."""
    return f"{100 * difference:+.1f} points".replace("+0.0 ", "0.0 ").replace("-0.0 ", "0.0 ")


def times(ratio: float) -> str:
    """Return a ratio: `2.16x`."""
    return f"{ratio:.2f}x"


def milliseconds(seconds: float) -> str:
    """Return a time: `281 ms`."""
    return f"{1000 * seconds:.0f} ms"
