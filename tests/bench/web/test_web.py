from __future__ import annotations

from pathlib import Path

import pytest

from bench.web.run import Row, main, packed_bytes, table


def test_ratios_are_of_rounds_and_their_mean_is_geometric() -> None:
    rows = [
        Row("a", [1.0, 9.0, 2.0], [4.0, 9.0, 4.0], 1e-6, 21_400),
        Row("b", [2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 0.0, 300),
    ]
    lines = table(rows, "1.30.0", 3_678_000).splitlines()
    assert lines[2] == "| a | 2.0 | 4.0 | 0.50 | 1e-06 | 21 |"
    assert lines[-1] == "| geometric mean | | | 1.00 | | theirs: 3678 |"


def test_what_is_not_installed_is_said_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--npm", str(tmp_path)])
    assert ended.value.code == 2
    assert "run npm install onnxruntime-web in" in capsys.readouterr().err


def test_files_count_as_they_are_sent(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(100_000))
    assert 0 < packed_bytes(tmp_path, ["zeros"]) < 1000


def test_a_network_that_cannot_be_raced_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer = tmp_path / "node_modules" / "onnxruntime-web"
    peer.mkdir(parents=True)
    (peer / "package.json").write_text('{"version": "1.30.0"}')
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert main([str(tmp_path / "broken.onnx"), "--npm", str(tmp_path)]) == 1
    assert "broken.onnx: " in capsys.readouterr().err
