"""The catalogue: names on the command line are files in traces/, policies/ and experiments/.

A name is looked up in the shipped catalogue first and then in the folders that the user gives, by
option or in the environment variable MARCONI_SIM_PATH (folders separated like those of PATH). Such
a folder is laid out like the shipped catalogue: FOLDER/traces/NAME.toml, FOLDER/policies/NAME.py,
FOLDER/experiments/NAME.toml. The current directory is never searched: a policy file is code, and a
file that happens to lie there must not replace a shipped one.

Only this module knows where the folders are. It imports nothing heavy, so that the command line
starts fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from marconi_sim.base.errors import UsageError, check_argument, did_you_mean

ENVIRONMENT_VARIABLE = "MARCONI_SIM_PATH"
# Folder of each kind of entry -> the word for one of them, and the endings of its files in order of
# preference.
KINDS = {
    "traces": ("trace", (".toml", ".parquet")),
    "policies": ("policy", (".py",)),
    "experiments": ("experiment", (".toml",)),
}
_PACKAGE = Path(__file__).parents[1]


def shipped() -> Path:
    """Return the shipped catalogue: a folder of the package, or the root of a checkout."""
    packed = _PACKAGE / "_catalogue"
    return packed if packed.is_dir() else _PACKAGE.parent


def own_folders(search: Iterable[str | Path]) -> tuple[str | Path, ...]:
    """Return the user's folders, checked for what they are but not for being there.

    Raises:
        UsageError: no list of folders; text alone would be taken for a list of letters.
    """
    if isinstance(search, str | Path) or not isinstance(search, Iterable):
        raise UsageError(f"search {search!r}: expected a list of folders")
    found = tuple(search)
    for folder in found:
        check_argument("search", folder, (str, Path), "a list of folders")
        if folder == "":
            raise UsageError("catalogue folder '': is empty; give a folder ('.' is this one)")
    return found


def folders(search: Iterable[str | Path] = ()) -> list[Path]:
    """Return the catalogue folders in the order in which they are searched.

    Args:
        search: the user's folders; those of MARCONI_SIM_PATH come after them.

    Raises:
        UsageError: one of the user's folders does not exist, or as `own_folders`.
    """
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    found = [shipped()]
    for folder, origin in [
        *((Path(f), "catalogue folder") for f in own_folders(search)),
        *((Path(f), f"in {ENVIRONMENT_VARIABLE}") for f in from_environment if f),
    ]:
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: no such folder ({origin});"
                " give a folder that holds traces/, policies/ or experiments/"
            )
        found.append(folder)
    return found


def entries(kind: str, search: Iterable[str | Path] = ()) -> dict[str, Path]:
    """Return name -> file of every entry of a kind (a key of `KINDS`), in alphabetical order.

    Where two folders have the same name, the one that is searched first is listed.

    Raises:
        UsageError: as `folders`.
    """
    found: dict[str, Path] = {}
    for folder in folders(search):
        for ending in KINDS[kind][1]:
            for path in sorted((folder / kind).glob(f"*{ending}")):
                if path.is_file() and not path.name.startswith(("_", ".")):
                    found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def origin(path: Path) -> str:
    """Return where a file comes from, for people: `shipped: policies/marconi.py`, or its path."""
    inside = path.resolve()
    homes = {kind: shipped() / kind for kind in KINDS} | {"models": _PACKAGE / "model" / "shapes"}
    for kind, home in homes.items():
        if inside.parent == home.resolve():
            return f"shipped: {kind}/{inside.name}"
    return str(path)


def is_path(value: str) -> bool:
    """Tell whether a value means a file: it has a path separator, or an ending and exists, or it is `.` or `..`."""
    separators = {os.sep, "/"} | ({os.altsep} if os.altsep else set())
    return (
        any(s in value for s in separators)
        or value in (".", "..")
        or (Path(value).suffix != "" and Path(value).exists())
    )


def find(kind: str, value: str | Path, search: Iterable[str | Path] = ()) -> Path:
    """Return the file that a name or a path means.

    Args:
        kind: a key of `KINDS`.
        value: a `Path`, or text that `is_path` takes for one; otherwise a name in the catalogue.
        search: the user's folders, see `folders`.

    Raises:
        UsageError: no such file, a name that no folder has, or neither text nor a path.
    """
    noun = KINDS[kind][0]
    check_argument(noun, value, (str, Path), "a name or the path of a file")
    if value == "":
        raise UsageError(
            f"{noun} '': is empty; give a name, see 'marconi-sim list {kind}', or a path"
        )
    if isinstance(value, Path) or is_path(value):
        if not Path(value).exists():
            raise UsageError(
                f"{noun} '{value}': no such file; give the path of a file, or a name without '/'"
            )
        return Path(value)
    known = entries(kind, search)
    if value not in known:
        raise UsageError(
            f"{noun} '{value}': no such file and not in the catalogue{did_you_mean(value, known)}"
        )
    return known[value]
