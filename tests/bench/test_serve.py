"""Both servers answer at each number of callers, and rows say of which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import serve
from bench.texts.encoder import Encoder

pytestmark = pytest.mark.processes


def test_a_model_and_its_peer_are_asked_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tiny_transformer", "--callers", "1", "3", "--seconds", "0.6", "--budget", "0"]
    assert serve.main([*words, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["engine"], row["callers"]) for row in rows] == [
        (engine, callers) for callers in (1, 3) for engine in ("tilewright", "onnxruntime")
    ]
    assert all(row["per_second"] > 0 and row["p99_ms"] >= row["median_ms"] > 0 for row in rows)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(table) == 1 + len(rows)


def test_an_encoder_is_asked_for_texts_of_unequal_lengths(tmp_path: Path) -> None:
    encoder = Encoder(positions=512)
    encoder.layer()
    (tmp_path / "m.onnx").write_bytes(encoder.finish(embedding=encoder.mean()))
    words = [str(tmp_path / "m.onnx"), "--texts", "--callers", "3", "--seconds", "0.6", "--budget", "0"]
    assert serve.main([*words, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["engine"] for row in rows] == ["tilewright", "onnxruntime"]
    assert all(row["per_second"] > 0 and row["alone_ms"] > 0 for row in rows)


def test_a_network_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        serve.main(["no_such_network"])
