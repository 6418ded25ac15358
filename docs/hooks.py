"""Hooks of mkdocs for the site of these pages (`mkdocs.yml`): its first page, the decisions, and files beside docs/."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([^)\s#]+)")


def decisions() -> list[str]:
    """The index of decisions, then its pages in its order; paths below docs/."""
    index = DOCS / "decisions" / "README.md"
    return [f"decisions/{name}" for name in (index.name, *dict.fromkeys(LINK.findall(index.read_text())))]


def first_page() -> str:
    """README.md, with links as docs/ has them."""
    return LINK.sub(
        lambda found: f"]({found[1]}" if "://" in found[1] else f"]({_from_docs(found[1])}",
        (ROOT / "README.md").read_text(),
    )


def outside() -> set[Path]:
    """What pages link to of the repository, files and folders, that is not in docs/."""
    pages = [(DOCS, first_page()), *((page.parent, page.read_text()) for page in DOCS.rglob("*.md"))]
    targets = {(folder / link).resolve() for folder, text in pages for link in LINK.findall(text) if "://" not in link}
    return {path for path in targets if path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)}


def on_config(config: Any) -> None:
    """Add the decisions to the navigation."""
    config.nav.append({"Decisions": decisions()})


def on_files(files: Any, config: Any) -> None:
    """Add the first page."""
    from mkdocs.structure.files import File  # with the extra `docs` alone

    files.append(File.generated(config, "index.md", content=first_page()))


def on_post_build(config: Any) -> None:
    """Put what pages link to beside the site, as docs/ has it beside itself."""
    for path in outside():
        copy = Path(config.site_dir).parent / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(path, copy)


def _from_docs(link: str) -> str:
    return link.removeprefix("docs/") if link.startswith("docs/") else f"../{link}"
