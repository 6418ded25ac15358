"""Text of a job that arrives while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.jobs.lifecycle.problems import CUT
from worker.processes.printed import EVERY_S, MORE, MOST_BYTES, PIECE_BYTES, Live


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(b"")
    return path


def add(log: Path, text: bytes) -> None:
    with log.open("ab") as file:
        file.write(text)


def test_whole_lines_are_handed_on_once_each_and_not_more_often_than_stated(log: Path) -> None:
    reported: list[str] = []
    live = Live(log, reported.append, now=0.0)
    add(log, b"first\nsec")
    live.look(EVERY_S / 2)
    assert reported == []
    live.look(EVERY_S)
    assert reported == ["first\n"]
    add(log, b"ond\n\xff\n")
    live.look(EVERY_S * 1.5)
    assert reported == ["first\n"], "it is not time yet"
    live.look(EVERY_S * 2)
    live.look(EVERY_S * 3)
    assert reported == ["first\n", "second\n\N{REPLACEMENT CHARACTER}\n"]


def test_a_flood_is_slowed_down_and_ends(log: Path) -> None:
    reported: list[str] = []
    live = Live(log, reported.append, now=0.0)
    add(log, (b"x" * 99 + b"\n") * (2 * MOST_BYTES // 100) + b"y" * 2 * PIECE_BYTES)
    for at in range(1, 100):
        live.look(at * EVERY_S)
    assert max(map(len, reported)) <= PIECE_BYTES + len(MORE)
    assert MOST_BYTES <= sum(map(len, reported)) <= MOST_BYTES + PIECE_BYTES + len(MORE)
    assert reported[-1].endswith(MORE)


def test_a_line_longer_than_a_piece_is_cut(log: Path) -> None:
    reported: list[str] = []
    live = Live(log, reported.append, now=0.0)
    add(log, b"y" * (PIECE_BYTES + 5) + b"\n")
    live.look(EVERY_S)
    live.look(EVERY_S * 2)
    assert reported == ["y" * PIECE_BYTES, "yyyyy\n"]


def test_nothing_is_handed_on_from_the_first_stack_of_calls(log: Path) -> None:
    reported: list[str] = []
    live = Live(log, reported.append, now=0.0)
    add(
        log,
        b'before\nTraceback (most recent call last):\n  File "/secret/place.py", line 3, in f\nValueError: /secret\n',
    )
    live.look(EVERY_S)
    add(log, b"after /secret\n")
    live.look(EVERY_S * 2)
    assert reported == ["before\n" + CUT]
