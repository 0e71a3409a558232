"""Renew docs/validation.md from runs on this machine, with nothing else running: python docs/validation_page.py.

The tables are what `marconi-sim validate-exact` and `marconi-sim validate-ttft` print, the figure is the latter's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent / "validation.md"
FIGURE = Path(__file__).parent / "figures" / "ttft.png"
COMMANDS = {
    "exact": "marconi-sim validate-exact",
    "ttft": "marconi-sim validate-ttft --out validation",
}


def _printed(command: str, folder: Path) -> str:
    tools = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([tools, os.environ.get("PATH", "")]),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        command.split(), cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "```\n$ " + command + "\n" + "\n".join(lines).strip("\n") + "\n```"


def main() -> None:
    """Run the commands and put what they print between the marks of the page."""
    text = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for mark, command in COMMANDS.items():
            block = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
            if not block.search(text):
                sys.exit(f"{PAGE.name}: the marks <!-- {mark} --> and <!-- /{mark} --> are missing")
            printed = _printed(command, folder)
            text = block.sub(lambda found, new=printed: found[1] + new + "\n" + found[2], text)
        shutil.copy(folder / "validation" / "ttft.png", FIGURE)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
