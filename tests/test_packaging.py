"""The wheel: what is in it, and that it works from any directory of a machine that has never seen the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from support import REPOSITORY

from marconi_sim import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(REPOSITORY),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are those of this one."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    binaries = home / ("Scripts" if os.name == "nt" else "bin")
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    (Path(paths["purelib"]) / "dependencies.pth").write_text(
        sysconfig.get_paths()["purelib"] + "\n"
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(binaries / "python"),
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return binaries


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def start(program: Path, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "MARCONI_SIM"))
    }
    return subprocess.run(
        [str(program), *args], cwd=cwd, env=kept, capture_output=True, text=True, check=False
    )


# --- contents ---


def test_every_module_is_in_it(names: set[str]):
    modules = {
        str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "marconi_sim").rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py") and "_catalogue" not in name} == modules


def test_catalogue_and_models_are_in_it(names: set[str]):
    def files(folder: str, *endings: str) -> set[str]:
        found = (REPOSITORY / folder).rglob("*")
        return {str(path.relative_to(REPOSITORY)) for path in found if path.suffix in endings}

    catalogue = (
        files("traces", ".toml", ".parquet")
        | files("policies", ".py")
        | files("experiments", ".toml")
    )
    assert {
        "traces/swebench.toml",
        "traces/data/swebench.parquet",
        "policies/vllm+.py",
    } <= catalogue
    assert {f"marconi_sim/_catalogue/{name}" for name in catalogue} <= names
    assert files("marconi_sim/models", ".toml") <= names


def test_nothing_else_is_in_it(names: set[str]):
    metadata = f"marconi_sim-{__version__}.dist-info/"
    rest = {name for name in names if not name.startswith(("marconi_sim/", metadata))}
    assert rest == set()
    endings = {Path(name).suffix for name in names if name.startswith("marconi_sim/")}
    assert endings <= {".py", ".toml", ".parquet", ".md", ".csv"}
    assert not [name for name in names if "__pycache__" in name or "test" in Path(name).name]
    assert f"{metadata}licenses/LICENSE" in names


def test_nothing_in_it_names_a_place_of_this_machine(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert str(REPOSITORY).encode() not in archive.read(name), name


# --- installed ---


@pytest.mark.compiled
def test_commands_work_from_an_empty_folder(installed: Path, elsewhere: Path):
    program = installed / "marconi-sim"
    listed = start(program, "list", "--json", cwd=elsewhere)
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert {"swebench", "taubench"} <= {row["name"] for row in found["traces"]}
    assert {"marconi", "vllm+"} <= {row["name"] for row in found["policies"]}
    assert all(str(installed.parent) in row["file"] for row in found["policies"])
    assert (
        start(program, "--version", cwd=elsewhere).stdout == f"marconi-sim, version {__version__}\n"
    )

    done = start(
        program, "run", "--trace", "swebench", "--policy", "marconi", "--json", cwd=elsewhere
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary["policy"] == "marconi"
    assert summary["requests"] > 5000
    assert 0 < summary["reused_tokens"] <= summary["bounds"]["unbounded"]["reused_tokens"]
    assert list(elsewhere.iterdir()) == []


def test_package_is_the_installed_one(installed: Path, elsewhere: Path):
    code = "import marconi_sim, marconi_sim.base.catalogue as c; print(marconi_sim.__file__); print(c.shipped())"
    done = start(installed / "python", "-c", code, cwd=elsewhere)
    package, catalogue = map(Path, done.stdout.split("\n")[:2])
    assert installed.parent in package.parents
    assert catalogue == package.parent / "_catalogue"


# --- start ---

HEAVY = (
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "datasets",
    "rich",
    "tokenizers",
    "torch",
)


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list", "--help"],
        ["trace", "import", "--help"],
    ],
    ids=" ".join,
)
def test_help_waits_for_nothing_heavy(args: list[str]):
    code = (
        "import sys; from marconi_sim.cli import main\n"
        f"sys.argv = ['marconi-sim', *{args!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    status = end.code\n"
        f"sys.exit([status, *(m for m in {HEAVY!r} if m in sys.modules)] != [0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
