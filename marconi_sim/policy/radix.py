"""The family of radix-tree policies (DESIGN section 5): `sglang+`, `marconi` and relatives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import EVICTIONS, new_outcome
from marconi_sim.core.params import make_params
from marconi_sim.core.radix.cache import (
    NOWHERE_ELSE,
    UNLIMITED,
    Budget,
    Positions,
    Rules,
    new_radix_cache,
)
from marconi_sim.core.radix.evict import no_value, recency_only
from marconi_sim.core.radix.plan import NO_PLANNER, PLANNER
from marconi_sim.core.shape import Shape
from marconi_sim.policy.base import Policy, Replayed
from marconi_sim.policy.listener import Listener
from marconi_sim.policy.parameter import Parameter
from marconi_sim.policy.radix_run import RadixRun

BOOTSTRAP = "bootstrap"
# Places of checkpoints that lie at nodes of the prefix index, and those that lie anywhere: place -> its parameter.
_AT_NODES = ("branch_point", "input_end", "sequence_end")
_PERIODIC = {"interval": "interval", "chunk_end": "chunk"}


def _most_positions(
    positions: Positions, inputs: NDArray[np.int32], sequences: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return how many checkpoints requests of so many tokens can plan at most, (requests,)."""
    most = np.zeros(inputs.size, np.int64)
    most += positions.branch_point + positions.input_end + positions.sequence_end
    if positions.interval:
        most += sequences // positions.interval
    if positions.chunk:
        most += inputs // positions.chunk
    return most


class RadixPolicy(Policy):
    """Base of the radix-tree policies. A policy overrides what it needs; the defaults are `marconi` without its score.

    Class attributes:
        admits: where a state is checkpointed, among `branch_point`, `input_end`, `sequence_end`, `interval` (every so
            many tokens from the start of the sequence) and `chunk_end` (the ends of chunks in which what was not reused
            of the input is computed). A policy with `interval` has a parameter `interval`, tokens; one with `chunk_end`
            a parameter `chunk`, tokens. A policy with a parameter `grid`, tokens, has every position but the interval's
            rounded down to a multiple of it.
        evicts: `leaves`, or `at_most_one_child`: a node in the middle of a path may go too, its child inherits its KV.
        touches: `reused_node` or `path`: whose time a look-up and an insertion refresh.
        normalised: whether recency and value reach `score` min-max normalised over the entries that may be evicted.
        unlimited: whether the policy ignores the capacity.
        bootstrap_grid: parameter -> the values that are tried where the user says `bootstrap`. Such a policy has a
            parameter `multiplier` too.

    A policy's arithmetic is two jitted functions, `value` and `score`; see `marconi_sim.core.radix.evict.Hooks`.
    """

    admits: ClassVar[tuple[str, ...]] = ("branch_point", "sequence_end")
    evicts: ClassVar[str] = "at_most_one_child"
    touches: ClassVar[str] = "reused_node"
    normalised: ClassVar[bool] = True
    unlimited: ClassVar[bool] = False
    bootstrap_grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    clock = Parameter(
        "logical",
        "what times a touch: a counter of look-ups and insertions, or the arrival in seconds",
        words=("logical", "seconds"), numeric=False,
    )  # fmt: skip

    value: Callable[..., float] = staticmethod(no_value)
    score: Callable[..., float] = staticmethod(recency_only)

    def __init_subclass__(cls) -> None:
        places = {*_AT_NODES, *_PERIODIC}
        if not set(cls.admits) <= places:
            raise TypeError(f"{cls.__name__}.admits: {cls.admits}, allowed: {sorted(places)}")
        declared = cls.parameters()
        for place, name in _PERIODIC.items():
            if place in cls.admits and name not in declared:
                raise TypeError(
                    f"{cls.__name__}.admits: {place} needs a parameter '{name}', tokens"
                )
        for name in ("interval", "chunk", "grid"):
            if name in declared and not (declared[name].integer and declared[name].low >= 1):
                raise TypeError(f"{cls.__name__}.{name}: must be a whole number of tokens, low=1")
        for attribute, allowed in (
            ("evicts", ("leaves", "at_most_one_child")),
            ("touches", ("reused_node", "path")),
        ):
            if getattr(cls, attribute) not in allowed:
                raise TypeError(
                    f"{cls.__name__}.{attribute}: {getattr(cls, attribute)!r}, allowed: {allowed}"
                )
        for name, parameter in cls.parameters().items():
            if BOOTSTRAP not in parameter.words:
                continue
            if not cls.bootstrap_grid.get(name) or "multiplier" not in cls.parameters():
                raise TypeError(
                    f"{cls.__name__}.{name} may be '{BOOTSTRAP}', which needs values in bootstrap_grid['{name}']"
                    " and a parameter multiplier"
                )

    @classmethod
    def rules(cls) -> dict[str, str]:
        return {
            "family": "radix tree: KV on edges, at most one recurrent state per node",
            "checkpoints a state at": ", ".join(cls.admits).replace("_", " "),
            "may evict": "nodes with at most one child" if cls.evicts != "leaves" else "leaves",
            "a touch refreshes": "the node reused"
            if cls.touches != "path"
            else "every node on the path",
            "capacity": "unlimited" if cls.unlimited else "as given",
        }

    def _positions(self) -> Positions:
        """Return where states lie beside those at nodes of the index, as the kernels take it."""
        grid = int(self.params.get("grid", 1))
        if grid == 1 and not any(place in self.admits for place in _PERIODIC):
            return NOWHERE_ELSE
        return Positions(
            branch_point="branch_point" in self.admits and grid > 1,
            input_end="input_end" in self.admits and grid > 1,
            sequence_end="sequence_end" in self.admits and grid > 1,
            interval=int(self.params["interval"]) if "interval" in self.admits else 0,
            chunk=int(self.params["chunk"]) if "chunk_end" in self.admits else 0,
            grid=grid,
        )

    def kernel_rules(self) -> Rules:
        """Return the declarations as the kernels take them."""
        exact = self._positions().grid == 1
        return Rules(
            branch_point="branch_point" in self.admits and exact,
            input_end="input_end" in self.admits and exact,
            sequence_end="sequence_end" in self.admits and exact,
            max_children=int(self.evicts == "at_most_one_child"),
            touch_path=self.touches == "path",
            normalised=self.normalised,
        )

    def _start(
        self,
        index: Index,
        requests: Requests,
        shape: Shape,
        capacity: int,
        check: bool,
        listener: Listener | None = None,
    ) -> RadixRun:
        nodes = index.parent.size
        tokens = int(
            index.depth.sum(dtype=np.int64) - index.depth[index.parent[1:]].sum(dtype=np.int64)
        )
        positions = self._positions()
        planned = _most_positions(
            positions, index.depth[requests.input_node], index.depth[requests.end_node]
        )
        # A mark lies inside an edge: there are no more than tokens that are not at nodes.
        marks = min(int(planned.sum(dtype=np.int64)), tokens - (nodes - 1))
        most = int(planned.max(initial=0))
        nodes += marks
        rules = self.kernel_rules()
        if self.unlimited or shape.kv_bytes * tokens + shape.state_bytes * nodes <= capacity:
            capacity, entries = UNLIMITED, 0
        elif rules.sequence_end and shape.state_bytes > 0:
            # Every leaf holds a state, and a node without one holds two branches together; while a sequence goes in
            # there are up to three states too many, and those planned.
            entries = min(nodes, 2 * (capacity // shape.state_bytes + 4 + most))
        else:
            entries = nodes
        if self.params["clock"] == "logical":
            requests = requests._replace(time=np.empty(0))
        outcome = new_outcome(requests.input_node.size)
        cache = new_radix_cache(
            index, shape, rules, Budget(capacity, UNLIMITED, UNLIMITED), entries, outcome.totals,
            positions=positions,
            marks=marks, planned=most, journal=listener is not None,
        )  # fmt: skip
        return RadixRun(
            self.name,
            self.value,
            self.score,
            NO_PLANNER if positions is NOWHERE_ELSE else PLANNER,
            requests,
            check,
            cache,
            outcome,
            listener,
        )

    def _check_score(self, values: dict[str, float]) -> None:
        """Raise unless `score` is what the search for victims relies on.

        Raises:
            UserError: it is not a weighted sum, or it falls when recency rises.
        """
        plain = getattr(self.score, "py_func", self.score)
        params = make_params(values)
        probes = (
            (0, 0),
            (1, 0),
            (0, 1),
            (0.25, 0.5),
            (0.5, 0.125),
            (1, 1),
            (3, 7),
            (1e6, 1e3),
            (1e3, 1e9),
        )
        try:
            scores = [float(plain(float(r), float(v), params)) for r, v in probes]
        except Exception as error:
            raise UserError(
                f"policy '{self.name}': its score() failed ({type(error).__name__}: {error})"
            ) from error
        nothing, of_time, of_value = scores[0], scores[1] - scores[0], scores[2] - scores[0]
        for (recency, value), got in zip(probes, scores, strict=True):
            expected = nothing + of_time * recency + of_value * value
            if not math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-9):
                raise UserError(
                    f"policy '{self.name}': score(recency, value) is not a weighted sum of the two"
                    f" ({got:g} at ({recency:g}, {value:g}), a weighted sum would be {expected:g});"
                    " put other arithmetic into value()"
                )
        if of_time < 0:
            raise UserError(
                f"policy '{self.name}': score() falls when recency rises;"
                " to evict the newest first, put the time into value() with normalised = False"
            )

    def needed_bytes(self, shape: Shape, tokens: int) -> int:
        return 0 if self.unlimited else shape.kv_bytes * tokens + shape.state_bytes

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
        run = self._start(index, requests, shape, capacity, check, listener)
        if listener is not None:
            listener.started(run.cache.prefix_index)
        total = requests.input_node.size
        # The order of the names is part of the type that kernels are compiled for: as declared, tuned or not.
        values: dict[str, float] = {}
        tuned: list[str] = []
        for name, value in self.params.items():
            if value == BOOTSTRAP:
                if tuned:
                    raise UsageError(
                        f"parameter {name}={BOOTSTRAP} of policy '{self.name}': {tuned[0]} is tuned already,"
                        " and one parameter at a time can be"
                    )
                tuned.append(name)
                values[name] = self.bootstrap_grid[name][0]
            elif not isinstance(value, str):
                values[name] = value
        self._check_score(values)
        run.advance(0, 0, values)  # compiles
        started = time.perf_counter()
        findings: dict[str, Any] = {}
        done = 0
        for parameter in tuned:
            done, findings = self._bootstrap(run, parameter, values)
        run.advance(done, total, values)
        return Replayed(run.outcome, findings, time.perf_counter() - started)

    def _bootstrap(
        self, run: RadixRun, parameter: str, values: dict[str, float]
    ) -> tuple[int, dict[str, Any]]:
        """Choose a parameter by replaying the start of the trace (DESIGN section 5, Alpha; paper section 4.3).

        The first value of the grid holds until `multiplier` times as many requests have been seen as at the first
        eviction. Then the requests since that eviction are replayed from the cache as it was for every value of the
        grid, and the one with the most reused tokens is adopted; ties go to the first.

        Sets `values[parameter]`; returns (number of the next request, findings).
        """
        grid = self.bootstrap_grid[parameter]
        total = run.requests.input_node.size
        first_eviction = run.advance(0, total, values, until_eviction=True)
        window_end = int(self.params["multiplier"]) * first_eviction
        if not run.cache.totals[EVICTIONS] or window_end > total:
            reached = first_eviction if run.cache.totals[EVICTIONS] else None
            return first_eviction, {f"tuned_{parameter}": None, "first_eviction_request": reached}
        snapshot = run.fork()
        run.advance(first_eviction, window_end, values)
        # One after the other: on real traces the whole grid takes 10 to 90 ms, and two threads (kernels release the
        # GIL) were no faster, joblib's slower; a sweep has work for every core anyway.
        reused = []
        for candidate in grid:
            trial = snapshot.fork()
            trial.advance(first_eviction, window_end, values | {parameter: candidate})
            reused.append(int(trial.outcome.reused[first_eviction:window_end].sum(dtype=np.int64)))
        values[parameter] = grid[int(np.argmax(reused))]
        return window_end, {
            f"tuned_{parameter}": values[parameter],
            "first_eviction_request": first_eviction,
        }
