from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.schedule.run import main


def test_wrong_arguments_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["no_such_network"])
    assert "no_such_network" in capsys.readouterr().err
    assert main(["missing.onnx"]) == 2


@pytest.mark.slow
def test_every_schedule_of_a_small_network_is_run_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = min(2, len(os.sched_getaffinity(0)))
    told = tmp_path / "rows.json"
    arguments = ["tiny_inception", "--threads", str(threads), "--budget", "2", "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--json", str(told)]) == 0
    rows = json.loads(told.read_text())
    assert rows[0]["scheduler"] == "sequential"
    assert all(row["ms"] > 0 and row["predicted_ms"] > 0 and row["search_s"] > 0 for row in rows)
    if threads > 1:
        assert {row["lanes"] for row in rows} == {1, 2}
        assert any(row["scheduler"] != "sequential" for row in rows)  # which, and on how many lanes, is up to the cores
    assert "| tiny_inception |" in capsys.readouterr().out
