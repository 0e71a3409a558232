"""The commands of README.md and what they print: checked by a test, renewed by `make readme`.

A fenced block marked `console` is a tour stop: lines that start with `$ ` are commands, the rest is their output. They
run in one empty folder, one after the other. A block marked `python` is run there too and must not fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BENCH = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)


def environment() -> dict[str, str]:
    """Return an environment where `marconi-sim` is this checkout and output is 80 columns without colour."""
    tools = str(Path(sys.executable).parent)
    path = os.pathsep.join([tools, os.environ.get("PATH", "")])
    return {
        **os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "README_ROOT": str(ROOT)
    }  # fmt: skip


def run_block(kind: str, text: str, folder: Path) -> str:
    """Return the block as it should read: commands with the output they have now."""
    if kind == "python":
        subprocess.run([sys.executable, "-c", text], cwd=folder, env=environment(), check=True)
        return text
    lines = []
    for line in text.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["bash", "-c", line[2:]], cwd=folder, env=environment(), capture_output=True, text=True
            )  # fmt: skip
            printed = (done.stdout + done.stderr).splitlines()
            lines += [line, *(one.rstrip() for one in printed)]
    return "\n".join(lines) + "\n"


def fresh(text: str) -> str:
    """Return the README with fresh output in every block."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "docs").symlink_to(ROOT / "docs")

        def renew(match: re.Match[str]) -> str:
            return f"```{match[1]}\n{run_block(match[1], match[2], Path(folder))}```"

        return BLOCK.sub(renew, text)


def write() -> None:
    """Renew the tour and the table of `make bench`."""
    text = fresh(README.read_text("utf-8"))
    bench = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bench.py")], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    README.write_text(BENCH.sub(lambda m: f"{m[1]}\n{bench}\n{m[2]}", text), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/readme.py --write")
    write()
