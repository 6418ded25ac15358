"""The pages of the documentation, and the shell commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [body for name, body in BLOCK.findall(text) if name == language]


def commands(text: str) -> Iterator[list[str]]:
    """Every command of the `sh` blocks, up to its first pipe, as words; continued lines are joined."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words[: words.index("|")] if "|" in words else words


def first_cells(text: str) -> list[str]:
    """What stands in backquotes in the first column of the tables."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
