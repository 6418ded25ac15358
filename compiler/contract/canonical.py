"""Texts that hashes are made of: they stay the same, release after release, for what stays the same.

A field that is added to a record after hashes of it were kept is marked LATER where it is declared: canonical texts
leave it out where it has its default, so that hashes of what does not use it are what they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Later:
    """The mark: a field is left out where it has its default; one that goes `beside` another where that is left out."""

    beside: str = ""


LATER = Later()
MARK = "later"
"""The key of the mark among a dataclass field's metadata."""


def canonical_text(one: Any, optional: Collection[str] = ()) -> str:
    """As Python shows a dataclass, without fields that are marked LATER or named in `optional` and have their default.

    Defaults are plain values, not factories.
    """
    later = {field.name: field.metadata[MARK] for field in fields(one) if MARK in field.metadata}
    marks = {**later, **dict.fromkeys(optional, LATER)}
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    defaults = {field.name: field.default for field in fields(one) if field.default is not MISSING}
    shown = ", ".join(f"{name}={values[name]!r}" for name in shown_fields(values, defaults, marks))
    return f"{type(one).__qualname__}({shown})"


@cache
def marked(described: type) -> Mapping[str, Later]:
    """The marks among the annotations of a class, by field, as in `Annotated[str, LATER]`."""
    hints = get_type_hints(described, include_extras=True)
    marks = ((name, one) for name, hint in hints.items() for one in getattr(hint, "__metadata__", ()))
    return {name: one for name, one in marks if isinstance(one, Later)}


def shown_fields(values: Mapping[str, Any], defaults: Mapping[str, Any], marks: Mapping[str, Later]) -> Iterator[str]:
    """Names of fields in order, without those with a mark that say no more than their default."""
    for name in values:
        mark = marks.get(name)
        of = mark.beside or name if mark else ""
        if not of or values[of] != defaults[of]:
            yield name
