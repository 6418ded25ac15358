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
    held = [row.pop("held_mib") for row in rows]
    assert held[0]["weights"] > 0 < held[0]["libraries"], "of ours, known by their mappings"
    assert held[1]["weights"] == held[1]["libraries"] == 0 < held[1]["rest"]
    assert [row.pop("made_mib") for row in rows] == [0, 0]
    assert [row.pop("arena_mib") > 0 for row in rows] == [True, False]
    assert all(min(row.values()) > 0 for row in rows)
    said = capsys.readouterr().out.splitlines()
    assert len([line for line in said if line.startswith("| tilewright")]) == 1
    assert said[-1].startswith("MiB of ours: weights mapped ")
    made = {file: file.stat().st_mtime_ns for file in (tmp_path / "kept").glob("*.tw")}
    assert {file.stem for file in made} == {*NETWORKS, run.TWO_NODES}
    for name in NETWORKS:
        run.prepare(name, tmp_path / "kept")
    assert made == {file: file.stat().st_mtime_ns for file in made}


def test_a_network_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main(["no_such_network"])
