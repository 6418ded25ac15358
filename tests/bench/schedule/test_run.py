from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.schedule.run import main
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.devices.cuda import nvrtc

needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")


def test_wrong_arguments_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["no_such_network"])
    assert "no_such_network" in capsys.readouterr().err
    assert main(["missing.onnx"]) == 2
    assert main(["tiny_inception", "--gaps", "--target", "cuda:sm_90"]) == 2
    assert "Fix: leave --target out" in capsys.readouterr().err
    for option in ("--solver", "--budget"):
        with pytest.raises(SystemExit, match="2"):
            main(["tiny_inception", option, "-1"])
        assert "'-1' is not a number of seconds from 0 on" in capsys.readouterr().err


def test_schedules_for_another_machine_are_predicted_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = tmp_path / "rows.json"
    foreign = next(profile.name for profile in PROFILES if not runs_here(profile))
    arguments = ["tiny_inception", "--target", foreign, "--threads", "3", "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--json", str(reported)]) == 0
    rows = json.loads(reported.read_text())
    assert {row["target"] for row in rows} == {foreign}
    assert (rows[0]["scheduler"], rows[0]["predicted_ratio"]) == ("sequential", 1.0)
    assert all(row["ms"] is None and row["predicted_ms"] > 0 for row in rows)
    assert sum(row["taken"] for row in rows) == 1
    assert "Nothing was run" in capsys.readouterr().out


@needs_nvrtc
def test_a_plan_for_a_gpu_is_told_by_its_launches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    reported = tmp_path / "rows.json"
    arguments = ["tiny_inception", "--target", "cuda:sm_90", "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--json", str(reported)]) == 0
    rows = json.loads(reported.read_text())
    first, *others = rows
    assert (first["scheduler"], first["launches"], first["depth"], first["handovers"]) == (
        "sequential",
        first["calls"],
        first["calls"],
        0,
    )
    assert others, "branches can run beside each other"
    assert [row["launches"] for row in rows if row["scheduler"] == "persistent"] == [1]
    assert all(row["depth"] <= row["launches"] <= first["launches"] for row in others)
    assert "| model | schedule | streams |" in capsys.readouterr().out


def test_gaps_are_told_for_each_number_of_lanes_and_nothing_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ortools")
    reported, cache = tmp_path / "rows.json", tmp_path / "cache"
    arguments = ["tiny_inception", "--gaps", "--threads", "2,3", "--solver", "1", "--cache", str(cache)]
    assert main([*arguments, "--json", str(reported)]) == 0
    rows = json.loads(reported.read_text())
    assert [row["threads"] for row in rows] == [2, 3]
    for row in rows:
        assert row["measured_calls"] == 0
        assert row["blocks"]
        assert all(block["bound_ms"] <= block["best_ms"] * (1 + 1e-6) for block in row["blocks"])
        assert all(min(block["ms"].values()) >= block["best_ms"] * (1 - 1e-6) for block in row["blocks"])
    assert not (cache / "artifacts").exists()
    assert "Worst / mean gap" in capsys.readouterr().out


@pytest.mark.slow
def test_every_schedule_of_a_small_network_is_run_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = min(2, len(os.sched_getaffinity(0)))
    reported = tmp_path / "rows.json"
    arguments = ["tiny_inception", "--threads", str(threads), "--budget", "2", "--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--json", str(reported)]) == 0
    rows = json.loads(reported.read_text())
    assert rows[0]["scheduler"] == "sequential"
    assert sum(row["taken"] for row in rows) == 1
    assert all(row["ms"] > 0 and row["predicted_ms"] > 0 and row["search_s"] > 0 for row in rows)
    if threads > 1:
        assert {row["lanes"] for row in rows} == {1, 2}
        assert any(row["scheduler"] != "sequential" for row in rows)  # which, and on how many lanes, is up to the cores
    assert "| tiny_inception |" in capsys.readouterr().out
