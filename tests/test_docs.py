"""Pages link to files that are there, and what a command prints into them has been printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import REPOSITORY

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("*/README.md")]
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
MARK = re.compile(r"<!-- ([a-z-]+) -->\n(.*?)<!-- /\1 -->", re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path):
    targets = [one for one in LINK.findall(page.read_text("utf-8")) if "://" not in one]
    assert [one for one in targets if not (page.parent / one).exists()] == []


def test_what_commands_print_is_there():
    blocks = {
        (named(page), mark): content.strip()
        for page in PAGES
        for mark, content in MARK.findall(page.read_text("utf-8"))
    }
    assert {
        ("docs/validation.md", "exact"),
        ("docs/validation.md", "ttft"),
        ("README.md", "bench"),
    } <= set(blocks)
    assert [key for key, content in blocks.items() if not content] == []
