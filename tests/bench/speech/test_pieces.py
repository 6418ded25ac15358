from __future__ import annotations

import math
from functools import partial

import pytest

from bench.speech.pieces import Row, main
from bench.zoo.voice import voice


def test_a_row_has_what_the_first_piece_and_all_of_them_take_beside_the_whole() -> None:
    assert str(Row(8192, 0.004, 0.001, 0.005, 2e-7)) == "| 8192 | 4.00 | 0.250 | 1.250 | 2.0e-07 |"


def test_pieces_are_measured_beside_all_sound_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: None)
    monkeypatch.setattr("bench.speech.pieces.voice", partial(voice, rates=(2,)))
    assert main(["--tokens", "24", "--width", "4", "--lengths", "24", "--rounds", "1"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    length, whole, first, pieces, distance = (cell.strip() for cell in row.strip("|").split("|"))
    assert length == "24"
    assert all(math.isfinite(float(one)) and float(one) > 0 for one in (whole, first, pieces))
    assert float(distance) < 1e-4
