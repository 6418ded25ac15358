"""Many models of one process are measured in both engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.many import run

NETWORKS = ("tiny_lstm", "tiny_lstm")
"""One that is loaded twice."""


def test_each_engine_has_a_row_and_artifacts_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*NETWORKS, "--rounds", "2", "--folder", str(tmp_path / "kept"), "--json", str(tmp_path / "rows.json")]
    assert run.main(words) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row.pop("engine") for row in rows] == ["tilewright", "onnxruntime"]
    assert all(row.pop("pss_mib") > 0 and min(row.values()) > 0 for row in rows)
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| tilewright")]) == 1
    made = {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").glob("*.tw")}
    assert {file.stem for file in made} == {*NETWORKS, run.TWO_NODES}
    for name in NETWORKS:
        run.prepare(name, tmp_path / "kept")
    assert made == {file: file.stat().st_mtime_ns for file in made}


def test_a_network_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main(["no_such_network"])
