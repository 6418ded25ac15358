"""Every engine gives the same results, and a rate for each round."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.texts import run
from bench.texts.encoder import Encoder


def test_engines_take_turns_on_the_same_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = Encoder(positions=512)
    encoder.layer()
    (tmp_path / "m.onnx").write_bytes(encoder.finish(embedding=encoder.mean()))
    words = [str(tmp_path / "m.onnx"), "--texts", "7", "--batches", "1", "3", "--rounds", "2"]
    assert run.main([*words, "--json", str(tmp_path / "rows.json")]) == 0
    found = json.loads((tmp_path / "rows.json").read_text())
    assert len(found["lengths"]) == 7
    peers = [f"{engine} {batch}" for engine in ("onnxruntime", "openvino") for batch in ("1", "3", "3 sorted")]
    assert [*found["texts_per_second"]] == ["tilewright", *peers]
    assert all(len(rates) == 2 and min(rates) > 0 for rates in found["texts_per_second"].values())
    assert "best peer sorted: " in capsys.readouterr().out


def test_lengths_are_those_that_were_asked_for() -> None:
    drawn = run.lengths_of(5000, 24, 0.7, 1)
    assert np.median(drawn) == pytest.approx(24, abs=1.5)
    assert 1 <= min(drawn) < max(drawn) <= run.LONGEST
    assert {*run.lengths_of(9, 24, 0.0, 0)} == {24}


def test_batches_come_back_in_the_order_of_the_texts() -> None:
    texts = run.texts_of([3, 1, 2], 9, 0)
    for is_sorted in (False, True):
        found = run.batched(lambda feeds: feeds["input_ids"].sum(1), texts, 2, is_sorted)
        assert [int(one) for one in found] == [int(text["input_ids"].sum()) for text in texts]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert run.main([str(tmp_path / "none.onnx")]) == 2
