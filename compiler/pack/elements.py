"""What the report's page is built of.

Texts and cells are HTML already: foreign text comes through `wording.escaped`.
"""

from __future__ import annotations

from collections.abc import Sequence


def section(title: str, words: str, body: str) -> str:
    """A heading, a paragraph unless `words` are empty, and the body."""
    lead = f"<p class='dim'>{words}</p>\n" if words else ""
    return f"<section>\n<h2>{title}</h2>\n{lead}{body}\n</section>"


def folded(title: str, body: str, opened: bool = False) -> str:
    """A part that the reader opens by its title; empty for an empty body."""
    if not body:
        return ""
    return f"<details{' open' if opened else ''}><summary>{title}</summary>\n{body}\n</details>"


def bar(share: float) -> str:
    """A bar as wide as `share` of its place, 0 to 1, and never quite invisible."""
    return f'<span class="share" style="width:{max(share * 100, 0.5):.1f}%"></span>'


def table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> str:
    """`head` gives each column its title and its CSS class; cells are HTML."""
    titles = "".join(f'<th class="{kind}">{title}</th>' for title, kind in head)
    top = f"<tr>{titles}</tr>\n" if any(title for title, _ in head) else ""
    body = "\n".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for (_, kind), cell in zip(head, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table>\n{top}{body}\n</table></div>'
