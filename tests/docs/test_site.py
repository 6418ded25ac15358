"""`mkdocs.yml` and docs/hooks.py: the pages as a site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

_spec = util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
assert _spec is not None
assert _spec.loader is not None
hooks = util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]


def test_every_page_stands_once_in_the_navigation() -> None:
    named = [*re.findall(r"- (?:[\w ]+: )?(\S+\.md)", NAVIGATION), *hooks.decisions()]
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(named) == sorted({*there, "index.md"})


def test_the_first_page_is_the_readme_and_its_links_lead_somewhere() -> None:
    text = hooks.first_page()
    links = [link for link in hooks.LINK.findall(text) if "://" not in link]
    assert {"start.md", "pictures/bars.svg", "../LICENSE"} <= {*links}
    assert all((DOCS / link).exists() for link in links)


def test_what_lies_outside_of_the_pages_is_found() -> None:
    found = hooks.outside()
    assert {ROOT / "bench/RESULTS.md", ROOT / "bench/history", ROOT / "LICENSE"} <= found
    assert not any(path == ROOT or path.is_relative_to(ROOT / ".git") for path in found)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if util.find_spec("mkdocs") is None or util.find_spec("material") is None:
        pytest.skip("the extra `docs` is not installed: pip install 'tilewright[docs]'")
    place = tmp_path / "site" / "docs"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS.rglob("*.md"):
        made = page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")
        assert (place / made.relative_to(DOCS)).exists(), page
    assert all((place.parent / path.relative_to(ROOT)).exists() for path in hooks.outside())
