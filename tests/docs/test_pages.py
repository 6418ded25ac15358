from __future__ import annotations

import re
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from compiler.contract import PHASES
from service.db.models import JobState
from tests.docs.pages import DOCS, PAGES, ROOT, WIDTH, commands, long_lines
from tilewright.cli import COMMANDS

IN_THE_TREE = re.compile(r"`((?:bench|compiler|docs|migrations|service|tests|tilewright|worker)/[\w./{},-]+)`")
"""Paths in backquotes, with or without braces."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text()
UNWRAPPED = {"options.md", "rewriting.md"}
"""Pages whose lines are longer than a line of prose should be."""
ARCHITECTURE = (DOCS / "architecture.md").read_text()
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
OTHER_PAGE = r"\[[^\]]+\]\((?P<page>[a-z0-9-]+\.md)\), \d{4}-\d\d-\d\d"
STATUS = re.compile(
    rf"Status: (?:superseded by {OTHER_PAGE}; )?accepted, (?P<date>\d{{4}}-\d\d-\d\d)"
    rf"(?:; amended by {OTHER_PAGE.replace('<page>', '<amending>')})?"
)
"""The third line of a decision: `Status: accepted, 2026-09-01`, with the page that superseded or amended it."""


def anchors(page: Path) -> set[str]:
    """The anchors that headings get."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert target.is_relative_to(ROOT), f"{page.name} links out of the repository: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


def spelled_out(text: str) -> list[str]:
    """Every path that a text with braces stands for: `a/{b,c}.py` is `a/b.py` and `a/c.py`."""
    parts = [part.split(",") for part in re.split(r"[{}]", text)]
    return ["".join(path) for path in product(*parts)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_in_backquotes_exist(page: Path) -> None:
    for text in IN_THE_TREE.findall(page.read_text()):
        for path in spelled_out(text):
            assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_braces_in_a_path_are_spelled_out() -> None:
    assert spelled_out("compiler/fuse") == ["compiler/fuse"]
    assert spelled_out("compiler/{ir,ops}/a.py") == ["compiler/ir/a.py", "compiler/ops/a.py"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in UNWRAPPED], ids=lambda page: page.name)
def test_lines_of_prose_fit(page: Path) -> None:
    assert long_lines(page.read_text()) == []


def test_rows_and_code_may_be_long_and_prose_may_not() -> None:
    words = "word " * 30
    assert long_lines(f"short\n| {words} |\n```sh\n{words}\n```\n") == []
    assert long_lines(f"short\n{words}\n") == [words]


def test_the_readme_fits_into_one_sitting_and_names_every_page() -> None:
    assert len(README.splitlines()) <= 250
    for page in DOCS.glob("*.md"):
        assert f"docs/{page.name}" in README


def test_the_readme_names_every_step_and_every_command() -> None:
    steps = re.findall(r"^\d\. \*\*(\w+)\*\*", README, re.MULTILINE)
    assert tuple(steps) == PHASES
    for name, _ in COMMANDS:
        assert re.search(rf"\b{name}\b", README), name


def test_the_architecture_names_every_step_state_and_room() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(compiler/\w+)` \|", ARCHITECTURE, re.MULTILINE)
    assert tuple(step for step, _ in rows) == PHASES
    for state in JobState:
        assert state in ARCHITECTURE
    for room in (ROOT / "compiler").glob("*/__init__.py"):
        assert re.search(rf"\b{room.parent.name}\b", ARCHITECTURE), room.parent.name


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for page in PAGES for words in commands(page.read_text()) if words[0] == "make"}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_one_page_of_context_decision_and_cost(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= 55
    assert [line for line in lines if len(line) > WIDTH] == []
    text = "\n".join(lines)
    places = [text.find(part) for part in ("# ", "**Context.**", "**Decision.**", "**What it costs.**")]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_status_and_date_under_the_title(page: Path) -> None:
    title, _, status, after, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    found = STATUS.fullmatch(status)
    assert found, f"the third line is no status: {status}"
    date.fromisoformat(found["date"])
    assert after == ""


def test_a_page_that_supersedes_another_is_accepted_itself() -> None:
    found = [(page, STATUS.fullmatch(page.read_text().splitlines()[2])) for page in DECISIONS]
    superseded = {page.name: match["page"] for page, match in found if match and match["page"]}
    assert superseded
    assert not superseded.keys() & set(superseded.values())
