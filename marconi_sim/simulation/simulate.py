"""`simulate`: a trace x a model x a capacity x a policy -> what was reused, and why the rest was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.catalogue import own_folders
from marconi_sim.base.errors import UsageError, UserError, check_argument
from marconi_sim.base.notices import warn
from marconi_sim.base.units import format_bytes, parse_bytes
from marconi_sim.base.version import __version__
from marconi_sim.core.departures import Departures
from marconi_sim.core.index.requests import Index, Requests
from marconi_sim.core.outcome import (
    BYPASSED,
    CAUSES,
    EVICTIONS,
    KV_TOKENS,
    PEAK_BYTES,
    STATES,
)
from marconi_sim.core.shape import Shape
from marconi_sim.model import Model, load_model
from marconi_sim.policy.base import Policy
from marconi_sim.policy.listener import Listener
from marconi_sim.policy.load import load_policy, recipe_params
from marconi_sim.simulation.result import Result, missed_columns
from marconi_sim.trace.load import Workload, load_trace

DEFAULT_MODEL = "hybrid-7b"
DEFAULT_CAPACITY = (
    "60GB"  # for a trace without a recipe: the paper's smallest SWE-bench cache in figure 11
)


def _capacity_bytes(capacity: str | int | None, workload: Workload) -> int:
    if capacity is None:
        return workload.recipe.capacity if workload.recipe else parse_bytes(DEFAULT_CAPACITY)
    if isinstance(capacity, str):
        return parse_bytes(capacity)
    try:
        whole = not isinstance(capacity, bool) and int(capacity) == capacity
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise UsageError(
            f"capacity {capacity!r}: expected a whole number of bytes or text like '60GB'"
        )
    return parse_bytes(str(int(capacity)))


def _check_arguments(
    trace: object, policy: object, model: object, params: Any, rules: object, check: object
) -> None:
    """Raise a `UsageError` at the first argument of `simulate` of a wrong type."""
    check_argument("trace", trace, (str, Path, Workload), "a name, a path or a workload")
    if isinstance(policy, type):
        if not issubclass(policy, Policy):
            raise UsageError(f"policy {policy.__name__}: a class that is not derived from Policy")
    else:
        allowed = "a name, a path, or a policy's class or instance"
        check_argument("policy", policy, (str, Path, Policy), allowed)
    check_argument("model", model, (str, Path, Model), "a name, a path or a model")
    check_argument("params", params, (Mapping,), "parameters by name, e.g. {'alpha': 0.5}")
    for name in params:
        check_argument("a name in params", name, (str,), "text")
    check_argument("rules", rules, (str, Departures), "'paper', 'artifact' or Departures")
    check_argument("check", check, (bool,), "True or False")


def choose_policy(
    policy: str | Path | type[Policy] | Policy,
    params: Mapping[str, Any],
    workload: Workload,
    search: Iterable[str | Path],
) -> Policy:
    """Return an instance: the user's parameters win over those that the trace's recipe names for the policy.

    Raises:
        UsageError: an unknown policy or parameter, or a value that is not allowed.
        UserError: a file that is not a policy.
    """
    if isinstance(policy, Policy):
        if params:
            raise UsageError(
                "params: the policy is an instance already; give its class or name instead"
            )
        return policy
    cls = policy if isinstance(policy, type) else load_policy(policy, search)
    recipe = workload.recipe
    defaults = recipe_params(cls, recipe.policy_defaults, search) if recipe else {}
    return cls(**{**defaults, **params})


def _warn_if_nothing_fits(workload: Workload, shape: Shape, policy: Policy, capacity: int) -> None:
    tokens = workload.trace.depth[workload.trace.end_node[workload.order]]
    least, most = (policy.needed_bytes(shape, int(n)) for n in (tokens.min(), tokens.max()))
    if least > capacity:
        needs = f"the shortest of {tokens.size} needs {format_bytes(least)}, the longest {format_bytes(most)}"
        if least == most:
            needs = f"each needs {format_bytes(least)}"
        warn(
            f"capacity {format_bytes(capacity)} is below one {policy.unit}: nothing can be cached; {needs}"
        )


def simulate(
    trace: str | Path | Workload,
    *,
    policy: str | Path | type[Policy] | Policy = "marconi",
    capacity: str | int | None = None,
    model: str | Path | Model = DEFAULT_MODEL,
    params: Mapping[str, Any] | None = None,
    rules: str | Departures = "paper",
    check: bool = False,
    search: Iterable[str | Path] = (),
) -> Result:
    """Replay a trace against a cache.

    Args:
        trace: a workload from `load_trace`, or what `load_trace` takes.
        policy: a name in the catalogue, the path of a policy file, a class, or an instance.
        capacity: bytes, as a number or as text with a unit; default: what the trace's recipe says.
        model: a shipped model's name, the path of a model file, or a `Model`.
        params: the policy's parameters; they win over those that the trace's recipe names for the policy.
        rules: `paper`; `artifact`, the rules of the authors' published code, for the policies that they published; or
            `Departures`, any combination of the two.
        check: check every invariant after every request; slower.
        search: the user's catalogue folders.

    Raises:
        UsageError: an unknown name, a parameter or capacity that is not allowed, or an argument of a wrong type.
        UserError: a file that cannot be used.
    """
    params = {} if params is None else params
    _check_arguments(trace, policy, model, params, rules, check)
    search = own_folders(search)
    workload = trace if isinstance(trace, Workload) else load_trace(trace, search=search)
    shape_of = model if isinstance(model, Model) else load_model(model)
    chosen = choose_policy(policy, params, workload, search)
    capacity_bytes = _capacity_bytes(capacity, workload)
    _warn_if_nothing_fits(workload, shape_of.shape, chosen, capacity_bytes)
    return replay_workload(workload, chosen, shape_of, capacity_bytes, rules=rules, check=check)


def replay_inputs(workload: Workload) -> tuple[Index, Requests]:
    """Return what a policy's replay takes of a workload."""
    compiled, rows = workload.trace, workload.order
    return Index(compiled.parent, compiled.depth), Requests(
        compiled.input_node[rows], compiled.end_node[rows], workload.arrival
    )


def _check_size(workload: Workload, model: Model) -> None:
    """Raise if bytes could pass 2^63, which the kernels count in: a state and KV for every token there is."""
    trace = workload.trace
    parents = trace.depth[trace.parent[1:]]
    tokens = int(trace.depth.sum(dtype=np.int64) - parents.sum(dtype=np.int64))
    if tokens * (model.kv_bytes + model.state_bytes) >= 2**63:
        raise UserError(
            f"model '{model.name}': too large for trace '{workload.name}', a cache of everything could hold more than"
            " 2^63 bytes; give fewer layers or smaller dimensions"
        )


def replay_workload(
    workload: Workload,
    chosen: Policy,
    model: Model,
    capacity_bytes: int,
    *,
    rules: str | Departures = "paper",
    check: bool = False,
    listener: Listener | None = None,
) -> Result:
    """Replay a workload with a policy's instance: `simulate` after everything is looked up.

    A listener is told of every request; under the rules of the paper only.

    Raises:
        UsageError: the policy cannot be followed.
        UserError: the policy fails.
    """
    compiled = workload.trace
    rows = workload.order
    index, requests = replay_inputs(workload)
    shape = model.shape
    _check_size(workload, model)
    if rules == "paper":
        rules_name = "paper"
        replayed = chosen.replay(
            index, requests, shape, capacity_bytes, check=check, listener=listener
        )
    else:
        if listener is not None:
            raise UsageError(
                f"rules {rules!r}: only a replay by the paper's rules can be followed request by request"
            )
        from marconi_sim.policy.artifact import departures_of, name_of, replay_departing

        departures = departures_of(rules)
        rules_name = name_of(departures)
        replayed = replay_departing(
            chosen, index, requests, model, capacity_bytes, departures, check=check
        )
    outcome, findings, seconds = replayed

    input_tokens = compiled.depth[requests.input_node]
    total_flops = _flops(shape, input_tokens)
    saved_flops = _flops(shape, outcome.reused)
    columns = {
        "request": np.arange(rows.size, dtype=np.int64),
        "session": compiled.session_labels[compiled.session[rows]],
        "turn": compiled.turn[rows],
        "arrival": workload.arrival,
        "input_tokens": input_tokens,
        "output_tokens": compiled.depth[requests.end_node] - input_tokens,
        "matched_tokens": outcome.matched,
        "reused_tokens": outcome.reused,
        "flops_total": total_flops,
        "flops_saved": saved_flops,
        **missed_columns(outcome.missed),
    }
    all_input = int(input_tokens.sum(dtype=np.int64))
    all_reused = int(outcome.reused.sum(dtype=np.int64))
    missed = outcome.missed.sum(axis=0, dtype=np.int64)
    summary = {
        "trace": workload.name,
        "policy": chosen.name,
        "params": dict(chosen.params),
        "rules": rules_name,
        "model": model.name,
        "accounting": model.accounting,
        "capacity_bytes": capacity_bytes,
        "requests": int(rows.size),
        "sessions": workload.sessions,
        "input_tokens": all_input,
        "reused_tokens": all_reused,
        "token_hit_rate": all_reused / all_input,
        "request_hit_rate": float((outcome.reused > 0).mean()),
        "flops_total": float(total_flops.sum()),
        "flops_saved": float(saved_flops.sum()),
        "peak_bytes": int(outcome.totals[PEAK_BYTES]),
        "evictions": int(outcome.totals[EVICTIONS]),
        "bypassed": int(outcome.totals[BYPASSED]),
        "states": int(outcome.totals[STATES]),
        "kv_tokens": int(outcome.totals[KV_TOKENS]),
        **findings,
        "missed": {cause: int(missed[i]) for i, cause in enumerate(CAUSES)},
        "seconds": seconds,
        "synthetic": workload.recipe.synthetic
        if workload.recipe
        else bool(compiled.provenance.get("synthetic")),
        "sessions_per_second": workload.arrivals.sessions_per_second,
        "response_time": workload.arrivals.response_time,
        "seed": workload.arrivals.seed,
        "trace_sha256": compiled.sha256,
        "policy_sha256": chosen.sha256 or None,
        "version": __version__,
    }
    return Result(summary, columns)


def _flops(shape: Shape, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    length = tokens.astype(np.float64)
    flops: NDArray[np.float64] = length * (shape.flops_linear + shape.flops_quadratic * length)
    return flops
