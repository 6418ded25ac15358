"""The pages of the documentation, and the shell commands in them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WIDTH = 120
"""Columns of a line of prose."""
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


def wrapped(paragraph: str) -> str:
    """A paragraph in lines of at most `WIDTH` columns, broken between words alone."""
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)


def long_lines(text: str) -> list[str]:
    """The lines of prose that have more than `WIDTH` columns; a row of a table and a line of code cannot be broken."""
    prose = re.sub(BLOCK, "", text).splitlines()
    return [line for line in prose if len(line) > WIDTH and not line.lstrip().startswith("|")]
