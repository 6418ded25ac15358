"""The extras of this distribution: what of one is not installed here."""

from __future__ import annotations

import re

from tilewright.errors import UsageError

SHOWN = 3
"""Missing packages that a message names."""


def require(extra: str, purpose: str) -> None:
    """Raise `UsageError`, which names the extra, where a distribution that it asks for is not installed.

    `purpose` is what needs it: the subject of the message.
    """
    if absent := missing(extra):
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        raise UsageError(
            f"{purpose} needs packages that are not installed here: {', '.join(absent[:SHOWN])}{more}",
            fix=f"pip install 'tilewright[{extra}]'",
        )


def missing(extra: str) -> list[str]:
    """The names of the distributions that an extra asks for and that are not installed.

    None of a checkout that is not installed itself. Markers other than that of the extra are not evaluated.
    """
    from importlib import metadata

    try:
        asked = metadata.requires("tilewright") or []
    except metadata.PackageNotFoundError:
        return []
    names = [re.split(r"[^\w.-]", text)[0] for text in asked if re.search(rf"extra == ['\"]{extra}['\"]", text)]
    return [name for name in names if not _installed(name)]


def _installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
