"""Canonical texts leave out what came later and has its default."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import pytest

from compiler.contract.canonical import LATER, MARK, Later, canonical_text, marked, shown_fields


@dataclass(frozen=True)
class Earlier:
    """A record as it was."""

    name: str
    size: int = 1


@dataclass(frozen=True)
class Record:
    """The same record with more."""

    name: str
    size: int = 1
    margins: tuple[int, ...] = field(default=(), metadata={MARK: LATER})
    unread: bool = field(default=False, metadata={MARK: LATER})


@dataclass(frozen=True)
class Options:
    """Marks among annotations."""

    devices: Annotated[tuple[str, ...], LATER] = ()
    objective: Annotated[str, "a word", Later(beside="devices")] = "latency"
    threads: int = 1


def test_what_has_only_the_earlier_fields_has_the_text_that_python_gave_it() -> None:
    assert canonical_text(Record("a", 2)) == repr(Earlier("a", 2)).replace("Earlier", "Record")


def test_a_field_that_is_marked_is_shown_where_it_says_something() -> None:
    one = Record("a", 1, (0,))
    assert canonical_text(one) == "Record(name='a', size=1, margins=(0,))"
    assert canonical_text(replace(one, margins=(), unread=True)) == "Record(name='a', size=1, unread=True)"


def test_others_are_left_out_where_the_caller_says_so_and_they_have_their_default() -> None:
    assert canonical_text(Record("a"), ("size",)) == "Record(name='a')"
    assert canonical_text(Record("a", 2), ("size",)) == "Record(name='a', size=2)"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), ["threads"]),
        (Options(objective="throughput"), ["threads"]),
        (Options(("cpu:0",)), ["devices", "objective", "threads"]),
    ],
)
def test_what_belongs_to_another_field_is_shown_with_it(options: Options, expected: list[str]) -> None:
    assert {*marked(Options)} == {"devices", "objective"}
    assert [*shown_fields(vars(options), vars(Options()), marked(Options))] == expected
