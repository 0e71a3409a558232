"""What every cache policy has: a name, checked parameters, and a replay of requests."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import Outcome
from marconi_sim.core.shape import Shape
from marconi_sim.policy.listener import Listener
from marconi_sim.policy.parameter import Parameter


class Replayed(NamedTuple):
    """What a replay returns.

    outcome: of every request.
    findings: what the policy found out about itself, by name.
    seconds: that the replay took, compilation not included.
    """

    outcome: Outcome
    findings: Mapping[str, Any]
    seconds: float


class CheckError(UserError):
    """An invariant does not hold: a bug in the simulator, or in the hooks of a policy."""

    def __init__(self, policy: str, request: int, complaint: str) -> None:
        super().__init__(
            f"policy '{policy}': check failed at request {request} in processing order: {complaint};"
            " please report it, with the trace if you can"
        )


class Policy:
    """Base of all policies. A policy file defines one subclass of a family (`RadixPolicy`, `BlockPolicy` ...).

    Class attributes that are `Parameter`s are the policy's parameters; an instance holds their checked values.

    Attributes:
        name: what the policy is called in results: the stem of its file.
        unit: what it admits as a whole: `sequence` or `block`.
        path: its file.
        sha256: hash of its file; empty for a class that is not from a file.
        published: whether the paper's authors published this policy, so that it can be replayed under the rules of
            their code (`marconi_sim.policy.artifact`).
        params: every parameter by name.
    """

    name: ClassVar[str] = ""
    unit: ClassVar[str] = "sequence"
    path: ClassVar[Path | None] = None
    sha256: ClassVar[str] = ""
    published: ClassVar[bool] = False

    def __init__(self, **params: Any) -> None:
        known = self.parameters()
        for key in params:
            if key not in known:
                raise UsageError(
                    f"parameter '{key}': unknown to policy '{self.name}'{did_you_mean(key, known)}"
                )
        self.params: dict[str, float | int | str] = {
            key: parameter.check(params.get(key, parameter.default), self.name)
            for key, parameter in known.items()
        }

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """Return the parameters by name: those of the family first, then the policy's own."""
        found: dict[str, Parameter] = {}
        for owner in reversed(cls.__mro__):
            found |= {k: v for k, v in vars(owner).items() if isinstance(v, Parameter)}
        return found

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the policy's docstring."""
        return (inspect.getdoc(cls) or "").split("\n")[0]

    @classmethod
    def rules(cls) -> dict[str, str]:
        """Return what the policy declares, for people: question -> answer."""
        raise TypeError(f"{cls.__name__}: a policy family must say what its policies declare")

    def needed_bytes(self, shape: Shape, tokens: int) -> int:
        """Return the capacity below which no unit of a sequence of `tokens` tokens can be held; 0: it has no influence.

        Raises:
            TypeError: the family does not say.
        """
        raise TypeError(f"{type(self).__name__}: a policy family must say what it needs")

    def replay(
        self,
        index: Index,
        requests: Requests,
        shape: Shape,
        capacity: int,
        *,
        check: bool = False,
        listener: Listener | None = None,
    ) -> Replayed:
        """Replay requests in processing order.

        Args:
            index: the prefix index.
            requests: nodes and arrival times, seconds.
            shape: the model's costs.
            capacity: bytes.
            check: check every invariant after every request.
            listener: is told of every request; much slower.

        Raises:
            CheckError: one does not hold.
            UsageError: the family tells listeners nothing.
        """
        raise TypeError(f"{type(self).__name__}: a policy family must replay requests")
