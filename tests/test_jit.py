"""`core/jit.py`: what the compile cache must do, in fresh processes over a copy of the package.

A small kernel that takes a policy's hook stands for the replays, which compile longer; one test runs a real one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import REPOSITORY

from marconi_sim.core.identity import identity

TINY = """
from marconi_sim.core.callee import increment
from marconi_sim.core.jit import kernel


@kernel
def total(count, params, hook):
    result = 0.0
    for i in range(count):
        result += hook(increment(float(i)), params)
    return result


@kernel
def read(array, position):
    return array[position]


@kernel
def first(pair):
    return pair.a
"""
CALLEE = """
from marconi_sim.core.jit import inner
from marconi_sim.core.room import numbers
from marconi_sim.core.room.deeper import STEP, deeper


@inner
def increment(x):
    return deeper(x) + 1.0 + STEP + numbers.STEP
"""
DEEPER = """
from marconi_sim.core.jit import inner

STEP = 0.0


@inner
def deeper(x):
    return x + 0.0
"""
NUMBERS = """
STEP = 0.0
"""
PAIR = """
from typing import NamedTuple


class Pair(NamedTuple):
    a: float
    b: float
"""
POLICY = '''"""A policy."""
from marconi_sim.policy import RadixPolicy, kernel


class Mine(RadixPolicy):
    """A policy."""

    @staticmethod
    @kernel
    def value(entry, params):
        return params.alpha * entry + {constant}
'''
# Prints, for each policy file: what the kernel returns, and how often it was found in the cache and compiled.
PROBE = """
import json, sys
from pathlib import Path
from marconi_sim.core import tiny
from marconi_sim.core.params import make_params
from marconi_sim.policy.load import load_policy

found = []
for path in sys.argv[1:]:
    policy = load_policy(Path(path))
    value = tiny.total(4, make_params({"alpha": 2.0, "beta": 0.0}), policy.value)
    stats = getattr(tiny.total, "stats", None)
    found.append([value] + ([sum(stats.cache_hits.values()), sum(stats.cache_misses.values())] if stats else []))
print(json.dumps(found))
"""
BOUNDS = """
import numpy as np
from marconi_sim.core import tiny

try:
    print(tiny.read(np.arange(10.0)[:4], 6))
except IndexError:
    print("IndexError")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package with the small kernel in its core, and two policies."""
    hidden = shutil.ignore_patterns("__pycache__", "data")
    shutil.copytree(REPOSITORY / "marconi_sim", tmp_path / "marconi_sim", ignore=hidden)
    shutil.copytree(REPOSITORY / "policies", tmp_path / "policies", ignore=hidden)
    (tmp_path / "marconi_sim" / "core" / "tiny.py").write_text(TINY)
    (tmp_path / "marconi_sim" / "core" / "callee.py").write_text(CALLEE)
    (tmp_path / "marconi_sim" / "core" / "pair.py").write_text(PAIR)
    room = tmp_path / "marconi_sim" / "core" / "room"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "deeper.py").write_text(DEEPER)
    (room / "numbers.py").write_text(NUMBERS)
    (tmp_path / "a.py").write_text(POLICY.format(constant=1.0))
    (tmp_path / "b.py").write_text(POLICY.format(constant=2.0))
    return tmp_path


def start(checkout: Path, code: str, *args: str, **variables: str) -> subprocess.Popen[str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHON"))
    }
    where = {"PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": str(checkout / "cache")}
    environment = {key: value for key, value in (kept | where | variables).items() if value}
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=checkout,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def probe(checkout: Path, *policies: str, **variables: str) -> Any:
    """Return [value, hits so far, compilations so far] after each policy."""
    return json.loads(
        finish(start(checkout, PROBE, *(f"{name}.py" for name in policies), **variables))
    )


def cached(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.nbc")}


pytestmark = pytest.mark.compiled

# The sum of 2 (i + 1) + c over i = 0 .. 3.
A, B = 24.0, 28.0


def test_second_process_compiles_nothing(checkout: Path):
    assert probe(checkout, "a", "b") == [[A, 0, 1], [B, 0, 2]]
    files = cached(checkout)
    assert files
    assert probe(checkout, "a", "b") == [[A, 1, 0], [B, 2, 0]]
    assert probe(checkout, "b") == [[B, 1, 0]]
    assert cached(checkout) == files


def test_editing_a_policy_compiles_that_policy_again(checkout: Path):
    probe(checkout, "a", "b")
    (checkout / "b.py").write_text(POLICY.format(constant=3.0))
    assert probe(checkout, "a", "b") == [[A, 1, 0], [32.0, 1, 1]]
    assert probe(checkout, "a", "b") == [[A, 1, 0], [32.0, 2, 0]]


def test_editing_a_callee_in_another_file_leaves_nothing_stale(checkout: Path):
    probe(checkout, "a")
    callee = checkout / "marconi_sim" / "core" / "callee.py"
    callee.write_text(CALLEE.replace("1.0", "2.0"))
    assert probe(checkout, "a") == [[A + 8.0, 0, 1]]
    assert probe(checkout, "a") == [[A + 8.0, 1, 0]]


def edit_unseen(path: Path, text: str) -> None:
    """Edit a file, to the same length and within the second of the last change, whatever the machine's speed."""
    if path.exists():
        assert len(path.read_text()) == len(text)
    path.write_text(text)
    os.utime(path, (1.0e9, 1.0e9))


# Where an edit hides, how often it is tried, and by how much each unit raises the sum over i = 0 .. 3: four times, and
# doubled by alpha before the hook.
PLACES: dict[str, tuple[str, str, str, int, float]] = {
    "callee in another file": ("marconi_sim/core/callee.py", CALLEE, "+ 1.0 +", 20, 8.0),
    "callee in a sub-room": ("marconi_sim/core/room/deeper.py", DEEPER, "x + 0.0", 20, 8.0),
    "constant in a sub-room": ("marconi_sim/core/room/deeper.py", DEEPER, "STEP = 0.0", 4, 8.0),
    "constant elsewhere": ("marconi_sim/core/room/numbers.py", NUMBERS, "STEP = 0.0", 4, 8.0),
    "policy": ("a.py", POLICY.format(constant=1.0), "+ 1.0", 20, 4.0),
}


@pytest.mark.parametrize("place", PLACES)
def test_twenty_edits_that_no_clock_and_no_length_shows(checkout: Path, place: str):
    name, text, before, count, slope = PLACES[place]
    start_at = int(before.split(".")[0][-1])
    path = checkout / name

    def write(number: int) -> None:
        edit_unseen(path, text.replace(before, before.replace(f"{start_at}.0", f"{number}.0")))

    def expected(number: int) -> float:
        return A + slope * (number - start_at)

    numbers = [i % (count // 2) for i in range(count)]  # twice each: what was stored may be wrong
    found = []
    for number in numbers:
        write(number)
        found.append(probe(checkout, "a", NUMBA_OPT="1")[0][0])
    assert found == [expected(number) for number in numbers]
    assert probe(checkout, "a", NUMBA_OPT="1") == [[expected(numbers[-1]), 1, 0]]


def test_an_edit_after_loading_is_not_what_is_stored(checkout: Path):
    """A process that runs the old code stores it as the old code, also if the file is new by then."""
    callee = checkout / "marconi_sim" / "core" / "callee.py"
    edit_unseen(callee, CALLEE)
    late = PROBE.replace(
        "found = []",
        f"import os\nPath({str(callee)!r}).write_text({CALLEE.replace('1.0', '2.0')!r})\n"
        f"os.utime({str(callee)!r}, (1e9, 1e9))\nfound = []",
    )
    assert json.loads(finish(start(checkout, late, "a.py"))) == [[A, 0, 1]]
    assert probe(checkout, "a") == [[A + 8.0, 0, 1]]


def test_the_order_of_an_arguments_fields_counts(checkout: Path):
    code = (
        "from marconi_sim.core import pair, tiny\n"
        "print(tiny.first(pair.Pair(a=1.0, b=2.0)), sum(tiny.first.stats.cache_misses.values()))"
    )
    file = checkout / "marconi_sim" / "core" / "pair.py"
    swapped = PAIR.replace("a:", "c:").replace("b:", "a:").replace("c:", "b:")
    found = []
    for text in (PAIR, PAIR, swapped, PAIR):
        edit_unseen(file, text)
        found.append(finish(start(checkout, code)).split())
    assert found == [["1.0", "1"], ["1.0", "0"], ["1.0", "1"], ["1.0", "0"]]


def test_bytecode_is_kept_between_processes_and_follows_its_folder(checkout: Path):
    """What is trusted by content is still a cache, and one that was moved names the files where they are."""
    code = "import marconi_sim.core.callee as c; print(c.__file__, c.increment.py_func.__code__.co_filename)"
    finish(start(checkout, code))
    stored = checkout / "marconi_sim" / "core" / "__pycache__"
    stored = stored / f"callee.{sys.implementation.cache_tag}.pyc"
    written = stored.stat().st_mtime_ns, stored.stat().st_ino
    finish(start(checkout, code))
    assert (stored.stat().st_mtime_ns, stored.stat().st_ino) == written
    moved = checkout / "moved"
    moved.mkdir()
    (checkout / "marconi_sim").rename(moved / "marconi_sim")
    here = str(moved / "marconi_sim" / "core" / "callee.py")
    assert finish(start(moved, code)).split() == [here, here]


def test_deleting_a_cached_policy_does_not_break_the_others(checkout: Path):
    probe(checkout, "a", "b")
    (checkout / "a.py").unlink()
    assert probe(checkout, "b") == [[B, 1, 0]]


def test_two_policies_of_one_name_do_not_meet(checkout: Path):
    other = checkout / "other"
    other.mkdir()
    (other / "a.py").write_text(POLICY.format(constant=2.0))
    assert probe(checkout, "a", "other/a") == [[A, 0, 1], [B, 0, 2]]
    assert probe(checkout, "other/a", "a") == [[B, 1, 0], [A, 2, 0]]


def test_bounds_checks_have_their_own_cache_entries(checkout: Path):
    def read(flag: str) -> str:
        return finish(start(checkout, BOUNDS, NUMBA_BOUNDSCHECK=flag)).strip()

    assert read("0") == "6.0"
    assert read("1") == "IndexError"
    assert read("0") == "6.0"
    assert read("1") == "IndexError"


def test_interpreted_gives_the_same_values(checkout: Path):
    assert probe(checkout, "a", "b", NUMBA_DISABLE_JIT="1") == [[A], [B]]
    assert not cached(checkout)


def test_package_in_a_folder_that_cannot_be_written(checkout: Path):
    for folder in (
        checkout,
        checkout / "marconi_sim" / "core",
        checkout / "marconi_sim" / "policy",
    ):
        (folder / "__pycache__").write_text("not a folder: root may write anywhere")
    variables = {
        "NUMBA_CACHE_DIR": "",
        "HOME": str(checkout / "home"),
        "XDG_CACHE_HOME": str(checkout / "home"),
    }
    assert probe(checkout, "a", **variables) == [[A, 0, 1]]
    assert cached(checkout / "home")
    assert probe(checkout, "a", **variables) == [[A, 1, 0]]


def test_nowhere_to_write_a_cache(checkout: Path):
    for folder in (
        checkout,
        checkout / "marconi_sim" / "core",
        checkout / "marconi_sim" / "policy",
    ):
        (folder / "__pycache__").write_text("not a folder")
    variables = {"NUMBA_CACHE_DIR": "", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    assert probe(checkout, "a", **variables)[0][0] == A


def test_two_processes_fill_one_cache_at_once(checkout: Path):
    at_once = [
        start(checkout, PROBE, f"{first}.py", f"{second}.py") for first, second in ("ab", "ba")
    ]
    values = [[row[0] for row in json.loads(finish(process))] for process in at_once]
    assert values == [[A, B], [B, A]]
    assert probe(checkout, "a", "b") == [[A, 1, 0], [B, 2, 0]]


def test_a_real_policy_compiles_once(checkout: Path):
    lines = [
        {"session_id": 0, "turn_id": i, "ts": i, "input_tokens": [1, 2, 3, i], "output_tokens": [i]}
        for i in range(4)
    ]
    (checkout / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = (
        "import marconi_sim as ms\n"
        "from marconi_sim.core.radix.replay import replay_radix\n"
        "r = ms.simulate('./t.jsonl', policy='sglang+', capacity=10**8)\n"
        "print(r.summary['reused_tokens'], r.summary['evictions'], sum(replay_radix.stats.cache_misses.values()))"
    )
    first = finish(start(checkout, code)).split()
    files = cached(checkout)
    assert files
    second = finish(start(checkout, code)).split()
    assert first[:2] == second[:2]
    assert int(first[1]) > 0
    assert (first[2], second[2]) == ("1", "0")
    assert cached(checkout) == files


MOVED = """
import sys
from pathlib import Path

import numpy as np
from marconi_sim.core import {module} as home
sys.path.insert(0, str(Path(__file__).parent))
from kernels_of_mine import first
print(first(home.Pair(np.arange(3.0), 1)))
"""
PAIR = """
from typing import NamedTuple

import numpy as np


class Pair(NamedTuple):
    a: np.ndarray
    b: int
"""


def test_a_type_that_has_moved_leaves_no_cache_that_cannot_be_read(tmp_path: Path):
    package = tmp_path / "marconi_sim"
    shutil.copytree(
        REPOSITORY / "marconi_sim", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "kernels_of_mine.py").write_text(
        "from marconi_sim.core.jit import kernel\n\n\n@kernel\ndef first(pair):\n    return pair.a[pair.b]\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for module in ("old_home", "new_home"):
        (package / "core" / "old_home.py").unlink(missing_ok=True)
        (package / "core" / f"{module}.py").write_text(PAIR)
        script = tmp_path / f"{module}.py"
        script.write_text(MOVED.format(module=module))
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == ("1.0\n", "")


def written(text: str, **values: Any) -> Callable[..., Any]:
    """Return the function `f` of a text, in a module of its own that holds these values."""
    space = {"__name__": "a_module", **values}
    exec(compile(text, "a_file.py", "exec", dont_inherit=True), space)
    return space["f"]  # type: ignore[return-value]


def test_what_an_identity_looks_at():
    module = types.ModuleType("elsewhere")
    module.LIMIT = 1  # type: ignore[attr-defined]
    other = types.ModuleType("elsewhere")
    other.LIMIT = 2  # type: ignore[attr-defined]
    reads, attribute = "def f(x): return x + LIMIT", "def f(x): return x + m.LIMIT"
    nested = "def f(x): return [g(i) for i in x]"
    same = [
        (written(reads, LIMIT=1), written(reads, LIMIT=1, UNUSED=3)),
        (written(reads, LIMIT=1), written("\n\n" + reads, LIMIT=1)),  # another line
        (written(attribute, m=module), written(attribute, m=module)),
        (written(nested, g=written(reads, LIMIT=1)), written(nested, g=written(reads, LIMIT=1))),
    ]
    assert [identity(one) == identity(two) != None for one, two in same] == [True] * len(same)  # noqa: E711
    different = [
        (written(reads, LIMIT=1), written(reads, LIMIT=2)),
        (written(reads, LIMIT=1), written(reads, LIMIT=1.0)),
        (written(reads, LIMIT=1), written(reads, LIMIT=True)),
        (written(reads, LIMIT=0.0), written(reads, LIMIT=-0.0)),
        (written(reads, LIMIT=np.arange(3)), written(reads, LIMIT=np.arange(1, 4))),
        (written(reads, LIMIT=np.arange(3)), written(reads, LIMIT=np.arange(3.0))),
        (written(reads, LIMIT=(1, (2,))), written(reads, LIMIT=(1, (3,)))),
        (written(reads, LIMIT=1), written("def f(x): return x - LIMIT", LIMIT=1)),
        (written("def f(x): return x + 1"), written("def f(x): return x + 2")),
        (written("def f(x, y=1): return y"), written("def f(x, y=2): return y")),
        (written("def f(x): return x.a"), written("def f(x): return x.b")),
        (written(attribute, m=module), written(attribute, m=other)),
        (written(nested, g=written(reads, LIMIT=1)), written(nested, g=written(reads, LIMIT=2))),
    ]
    assert [identity(one) != identity(two) for one, two in different] == [True] * len(different)


def test_two_callees_that_change_places_are_another_function():
    one, two = written("def f(x): return x + 1"), written("def f(x): return x + 2")
    text = "def f(x): return g(x) - 2 * h(x)"
    assert identity(written(text, g=one, h=two)) != identity(written(text, g=two, h=one))


def test_functions_that_call_each_other_have_an_identity():
    text = "def f(x): return g(x - {step}) if x else 0\ndef g(x): return f(x)"
    one, again, two = (written(text.format(step=step)) for step in (1, 1, 2))
    assert identity(one) == identity(again) != identity(two)


def test_what_nobody_can_tell_has_no_identity():
    reads = "def f(x): return x + LIMIT"
    assert identity(written(reads, LIMIT=object())) is None
    changed = written(reads, LIMIT=1)
    assert identity(changed) is not None
    changed.__globals__["LIMIT"] = 2
    assert identity(changed) is None, "its callers may hold it compiled, with the old value"


def test_every_kernel_of_the_package_and_its_policies_has_an_identity(checkout: Path):
    code = (
        "import importlib, pkgutil\n"
        "from pathlib import Path\n"
        "import marconi_sim.core as core\n"
        "from marconi_sim.core.identity import identity\n"
        "from marconi_sim.policy.load import load_policy\n"
        "names = [m.name for m in pkgutil.walk_packages(core.__path__, 'marconi_sim.core.')]\n"
        "spaces = [vars(importlib.import_module(name)) for name in names]\n"
        "for path in Path('policies').glob('*.py'):\n"
        "    policy = load_policy(path)\n"
        "    spaces.append({name: getattr(policy, name) for name in dir(policy)})\n"
        "kernels = {one for space in spaces for one in space.values() if hasattr(one, 'py_func')}\n"
        "print(len(kernels), [one for one in kernels if identity(one) is None])\n"
    )
    count, unknown = finish(start(checkout, code)).split(maxsplit=1)
    assert int(count) > 100
    assert unknown.strip() == "[]"
