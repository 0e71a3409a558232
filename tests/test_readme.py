"""The README's tour runs as written."""

from __future__ import annotations

import pytest
import readme


@pytest.mark.compiled
def test_every_command_of_the_tour_prints_what_the_readme_says():
    text = readme.README.read_text("utf-8")
    blocks = readme.BLOCK.findall(text)
    assert sum(kind == "console" for kind, _ in blocks) >= 6
    assert readme.fresh(text) == text


def test_it_names_exactly_two_commands_for_a_fresh_machine():
    text = readme.README.read_text("utf-8")
    start = text.index("## On a fresh machine")
    block = text[start : text.index("\n## ", start + 1)]
    commands = [
        line.split("#")[0].strip() for line in block.splitlines() if line.startswith("    make ")
    ]
    assert commands == ["make run", "make test"]
