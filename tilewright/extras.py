"""The extras of this distribution: what of one is not installed here."""

from __future__ import annotations

import re
from collections.abc import Collection

from tilewright.errors import UsageError

SHOWN = 3
"""Missing packages that a message names."""


def require(extra: str, purpose: str, *, replaceable: Collection[str] = ()) -> None:
    """Raise `UsageError`, which names the extra, where a distribution that it asks for is not installed.

    purpose      what needs it: the subject of the message
    replaceable  distributions that may be missing
    """
    if absent := [name for name in missing(extra) if name not in replaceable]:
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
