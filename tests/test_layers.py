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

# The rooms of the package from the bottom up. A room uses what lies below it, never a neighbour in its own row.
# Of two rooms that fit a file the longer name counts: `core` and `trace` are what lies loose there.
LAYERS = (
    ("base", "core", "trace"),
    ("core.index",),
    ("core.blocks", "core.bounds", "core.victims"),
    ("core.radix",),
    ("core.published",),
    ("model", "trace.compiled"),
    ("trace.arrivals", "trace.synthetic"),
    ("trace.importing",),
    ("trace.recipe",),
    ("trace.load", "trace.rebuild"),
    ("trace.description", "policy"),
    ("trace.export", "simulation"),
    ("adapters", "fidelity", "latency", "sweeps"),
    ("figures",),
    ("paper", "validation"),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
HEIGHTS = {room: height for height, layer in enumerate(LAYERS) for room in layer}


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


def graph(package: Path) -> dict[str, set[str]]:
    """Return what each file imports of its own package; names are without the package's."""
    files: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        files[".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)] = path

    def file_of(name: str) -> str:
        inner = name.removeprefix(package.name).removeprefix(".")
        while inner and inner not in files:
            inner = inner.rpartition(".")[0]
        return inner or "__init__"

    return {
        file: {file_of(name) for name in imports(path) if is_within(name, package.name)} - {file}
        for file, path in files.items()
    }


def room_of(file: str) -> str:
    """Return the room a file lies in, "" if the table names none."""
    while file and file not in HEIGHTS:
        file = file.rpartition(".")[0]
    return file


def against_the_layers(found: dict[str, set[str]]) -> list[str]:
    """Return every import that does not run down, and every file that lies in no room."""
    told = [f"{file}: in no room" for file in found if not room_of(file)]
    for file, used in found.items():
        for other in sorted(used):
            here, there = room_of(file), room_of(other)
            if here and there and here != there and HEIGHTS[there] >= HEIGHTS[here]:
                told.append(f"{file} -> {other}")
    return told


def circles(found: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of files that reach each other by their imports."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in found.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    reach = {file: reached(file) for file in found}
    groups = {
        tuple(sorted(other for other in reach[file] if file in reach.get(other, ())))
        for file in found
        if file in reach[file]
    }
    return sorted(groups)


def test_imports_run_down_the_layers():
    found = graph(PACKAGE)
    assert len(found) == len(SOURCES)
    assert against_the_layers(found) == []
    assert {room_of(file) for file in found} == set(HEIGHTS), "a room of the table is empty"


def test_there_are_few_rooms_at_the_top():
    top = {room.partition(".")[0] for room in HEIGHTS} - {"__init__", "__main__"}
    assert top == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert len(top) <= 14


def test_no_circles():
    assert circles(graph(PACKAGE)) == []


def test_the_layers_can_be_broken(tmp_path: Path):
    package = tmp_path / "marconi_sim"
    files = {
        "__init__": "from marconi_sim.base.units import counted",
        "attic": "",
        "base/__init__": "",
        "base/units": "import marconi_sim",
        "core/__init__": "",
        "core/index/__init__": "",
        "core/index/build": "from marconi_sim.core import jit",
        "core/jit": "def late():\n    from marconi_sim.core.index.build import ROOT",
        "model/__init__": "from marconi_sim.core.jit import kernel\nfrom marconi_sim.model import load",
        "model/load": "from marconi_sim import base",
        "trace/__init__": "",
        "trace/compiled/build": (
            "from typing import TYPE_CHECKING\nimport numpy\nif TYPE_CHECKING:\n"
            "    from marconi_sim.model.load import load_model"
        ),
        "trace/load": "import importlib\nimportlib.import_module('marconi_sim.cli.run')",
        "cli/run": "from marconi_sim.trace.load import load_trace",
    }
    for name, text in files.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    found = graph(package)
    assert sorted(against_the_layers(found)) == [
        "attic: in no room",
        "base.units -> __init__",  # up
        "core.jit -> core.index.build",  # up, inside a function
        "trace.compiled.build -> model.load",  # a neighbour, for types only
        "trace.load -> cli.run",  # up, by name
    ]
    assert circles(found) == [
        ("__init__", "base.units"),
        ("cli.run", "trace.load"),
        ("core.index.build", "core.jit"),
    ]


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
