"""Which part may use which: the rules of the layout, read from the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from support import REPOSITORY

from marconi_sim.base import catalogue
from marconi_sim.policy.load import load_policy

PACKAGE = REPOSITORY / "marconi_sim"
CORE = PACKAGE / "core"
SOURCES = sorted(PACKAGE.rglob("*.py"))
POLICIES = sorted((REPOSITORY / "policies").glob("*.py"))
EXAMPLES = sorted((REPOSITORY / "docs" / "examples").glob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, also inside functions and by name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (
                argument.value for argument in node.args if isinstance(argument, ast.Constant)
            )


def is_within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def decorators(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (function, its decorators) for every function that has some."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            yield node.name, [ast.unparse(decorator) for decorator in node.decorator_list]


def offenders(paths: Iterable[Path], check: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Return what `check` complains of, by file."""
    return {named(path): found for path in paths if (found := check(path))}


def called(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]


def test_there_is_something_to_check():
    assert len(SOURCES) > 40
    assert {named(path) for path in POLICIES} >= {"policies/marconi.py", "policies/vllm+.py"}
    assert "marconi_sim.core.jit.kernel" in set(imports(CORE / "blocks" / "replay.py"))


def test_core_imports_only_the_standard_library_numpy_numba_and_core():
    allowed = (*sys.stdlib_module_names, "numpy", "numba", "marconi_sim.core")

    def check(path: Path) -> list[str]:
        return [name for name in imports(path) if not is_within(name, *allowed)]

    assert offenders(CORE.rglob("*.py"), check) == {}


def test_the_package_imports_no_catalogue_file():
    stems = {stem for kind in catalogue.KINDS for stem in catalogue.entries(kind)}
    folders = {"policies", "traces", "experiments", "_catalogue"}

    def check(path: Path) -> list[str]:
        return [
            name
            for name in imports(path)
            if name.split(".")[0] in stems | folders or is_within(name, "marconi_sim._catalogue")
        ]

    assert offenders(SOURCES, check) == {}


def test_jitted_functions_live_in_core():
    def check(path: Path) -> list[str]:
        jitted = [name for name, found in decorators(path) if {"kernel", "inner"} & set(found)]
        used = [name for name in imports(path) if is_within(name, "numba")]
        return jitted + [name for name in used if name != "numba.core.errors.NumbaError"]

    assert offenders((path for path in SOURCES if CORE not in path.parents), check) == {}


def test_only_one_file_decides_how_functions_are_compiled():
    allowed = {"kernel", "inner", "functools.cache", "property"}

    def check(path: Path) -> list[str]:
        other = [name for name, found in decorators(path) if not set(found) <= allowed]
        return other + [name for name in imports(path) if is_within(name, "numba")]

    assert offenders((path for path in CORE.rglob("*.py") if path.name != "jit.py"), check) == {}
    options = {
        keyword
        for keyword in ("fastmath", "parallel", "cache=True")
        if keyword in compile_options()
    }
    assert options == set()


def compile_options() -> str:
    """Return the calls in core/jit.py that compile, as text."""
    nodes = ast.walk(ast.parse((CORE / "jit.py").read_text("utf-8")))
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and "njit" in ast.unparse(node.func)
    ]
    assert calls
    return " ".join(map(ast.unparse, calls))


def test_policies_use_the_public_names_only():
    allowed = (*sys.stdlib_module_names, "numpy", "marconi_sim.policy")

    def check(path: Path) -> list[str]:
        other = [name for name, found in decorators(path) if found != ["staticmethod", "kernel"]]
        return other + [name for name in imports(path) if not is_within(name, *allowed)]

    assert offenders(POLICIES + EXAMPLES, check) == {}


def test_policies_say_what_they_are():
    for path in POLICIES + EXAMPLES:
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path
        policy = load_policy(path)
        assert policy.summary(), path
        assert policy.name == path.stem
        assert [key for key, parameter in policy.parameters().items() if not parameter.help] == []


def test_nothing_prints():
    # Results go through click or rich, notices through marconi_sim.base.notices.
    assert offenders(SOURCES, lambda path: [name for name in called(path) if name == "print"]) == {}


def test_only_the_command_line_knows_click():
    def check(path: Path) -> list[str]:
        return [name for name in imports(path) if is_within(name, "click", "marconi_sim.cli")]

    outside = [path for path in SOURCES if PACKAGE / "cli" not in path.parents]
    assert offenders(outside, check) == {"marconi_sim/__main__.py": ["marconi_sim.cli.main"]}


def test_torch_is_known_to_the_adapters_and_the_validation_only():
    def check(path: Path) -> list[str]:
        names = ("torch", "transformers", "marconi_sim.adapters", "marconi_sim.validation")
        return [name for name in imports(path) if is_within(name, *names)]

    parts = (PACKAGE / "adapters", PACKAGE / "validation")
    outside = [path for path in SOURCES if not any(part in path.parents for part in parts)]
    assert set(offenders(outside, check)) == {"marconi_sim/cli/validate.py"}
    adapters = [path for path in SOURCES if PACKAGE / "adapters" in path.parents]
    decides = (
        "marconi_sim.policy",
        "marconi_sim.simulation.simulate",
        "marconi_sim.core.radix.cache",
    )
    assert (
        offenders(adapters, lambda path: [n for n in imports(path) if is_within(n, *decides)]) == {}
    )


def test_nothing_is_pickled_and_no_random_state_is_global():
    draws = {
        "seed",
        "rand",
        "randn",
        "randint",
        "random",
        "poisson",
        "choice",
        "shuffle",
        "permutation",
    }

    def check(path: Path) -> list[str]:
        hidden = [
            name
            for name in called(path)
            if name.rpartition(".")[2] in draws and "np.random." in name
        ]
        return hidden + [name for name in imports(path) if is_within(name, "pickle", "random")]

    assert offenders(SOURCES, check) == {}


def test_every_file_says_what_it_is_for():
    def check(path: Path) -> list[str]:
        text = path.read_text("utf-8")
        return [] if ast.get_docstring(ast.parse(text)) else ["no docstring"]

    assert offenders(SOURCES, check) == {}
