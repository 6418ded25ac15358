from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler.contract import PHASES
from service.db.models import JobState
from tests.docs.pages import DOCS, PAGES, ROOT, commands
from tilewright.cli import COMMANDS

IN_THE_TREE = re.compile(r"`((?:bench|compiler|docs|migrations|service|tests|tilewright|worker)/[\w./-]+)`")
"""Made from measurements, on the machine that makes them."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (DOCS / "architecture.md").read_text()
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_in_backquotes_exist(page: Path) -> None:
    for text in IN_THE_TREE.findall(page.read_text()):
        assert (ROOT / text).exists(), f"{page.name} names {text}"


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
    text = page.read_text()
    assert len(text.splitlines()) <= 40
    places = [text.find(part) for part in ("# ", "**Context.**", "**Decision.**", "**What it costs.**")]
    assert -1 not in places
    assert places == sorted(places)
