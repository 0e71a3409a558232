"""What a run is, in plain names and numbers that a worker can be sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from marconi_sim.model import Model
from marconi_sim.trace.arrivals import Arrivals

WORKING_SET = "wss"
WORKING_SET_POLICY = "unbounded"
_WORKING_SET = re.compile(rf"([0-9]+(?:\.[0-9]+)?){WORKING_SET}")


@dataclass(frozen=True)
class Schedule:
    """Which requests arrive when.

    Attributes:
        trace: a name in the catalogue or the absolute path of a file.
        trace_sha256: of the trace's content.
        sessions: how many take part.
        requests: how many they make.
    """

    trace: str
    trace_sha256: str
    sessions: int
    arrivals: Arrivals
    requests: int


@dataclass(frozen=True)
class Configuration:
    """All of a run but the policy.

    Attributes:
        capacity: bytes, or a fraction of the working set, as text.
        key: hash of the other attributes.
    """

    schedule: Schedule
    model: Model
    capacity: str
    key: str


@dataclass(frozen=True)
class Run:
    """A policy in a configuration.

    Attributes:
        policy: a name in the catalogue or the absolute path of a file.
        policy_sha256: of its file.
        params: every parameter, checked.
        rules: as in `simulate`, a name.
        key: hash of everything that the result can depend on.
    """

    configuration: Configuration
    policy: str
    policy_sha256: str
    params: tuple[tuple[str, Any], ...]
    rules: str
    key: str


def working_set_fraction(capacity: str) -> float | None:
    """Return the fraction in a capacity like `0.1wss`; None if it is in bytes."""
    match = _WORKING_SET.fullmatch(capacity.strip())
    return float(match[1]) if match else None
