"""From a policy's name or file to its class."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.policy.base import Policy


def _run_file(path: Path) -> tuple[ModuleType, str]:
    """Run a policy file; return the module and the file's hash.

    The module's name holds the hash: two files of one name do not meet. What runs is the text that was hashed: Python's
    bytecode cache would take a file for unchanged that was edited to the same length within a second.
    """
    source = path.read_bytes()
    sha256 = hashlib.sha256(source).hexdigest()
    name = f"marconi_policy_{path.stem}_{sha256[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.origin is None:
        raise UserError(f"{path}: not a Python file (policy); its name must end in .py")
    if name in sys.modules:
        return sys.modules[name], sha256
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = (
        module  # before it runs: numba's cache looks its functions up under this name
    )
    try:
        exec(compile(source, spec.origin, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = getattr(error, "lineno", None)
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == spec.origin:
                line = trace.tb_lineno
            trace = trace.tb_next
        place = f"{path}:{line}" if line else str(path)
        raise UserError(
            f"{place}: the policy cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    return module, sha256


def load_policy(name_or_path: str | Path, search: Iterable[str | Path] = ()) -> type[Policy]:
    """Return the policy class of a catalogue name or of a file, which is run as Python code.

    Raises:
        UsageError: an unknown name.
        UserError: the file does not run, or does not define exactly one policy.
    """
    path = readable_file(catalogue.find("policies", name_or_path, search), "policy")
    module, sha256 = _run_file(path)
    found = [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Policy)
        and member.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UserError(
            f"{path}: defines {len(found)} policies, expected exactly one class derived from RadixPolicy,"
            " BlockPolicy or BoundPolicy"
        )
    found[0].name = path.stem
    found[0].path = path
    found[0].sha256 = sha256
    return found[0]


def recipe_params(
    policy: type[Policy],
    policy_defaults: Mapping[str, Mapping[str, Any]],
    search: Iterable[str | Path] = (),
) -> Mapping[str, Any]:
    """Return the parameters that a trace's recipe names for a policy: for the one that its name finds in the catalogue.

    Another file with the same name is another policy, for which they were not chosen.
    """
    if policy.name not in policy_defaults or policy.path is None:
        return {}
    named = catalogue.entries("policies", search).get(policy.name)
    same = named is not None and named.resolve() == policy.path.resolve()
    return policy_defaults[policy.name] if same else {}
