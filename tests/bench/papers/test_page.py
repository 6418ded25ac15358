"""docs/papers.md is what the command writes of what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import COMMANDS
from bench.papers import run
from bench.papers.page import PAGE, PREDICTED, page, stored
from bench.papers.run import main, renewed
from bench.schedule import headlines
from bench.schedule.headlines import GPUS, NETWORKS, ON_CORES, RTX3090, V100, WITHOUT, on_cores, predicted
from bench.subjects import from_zoo
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import resolve
from compiler.disabled import enabled_passes
from compiler.errors import TargetUnavailable

CLAIMS, ROWS = stored()


def claim(**more: Any) -> dict[str, Any]:
    named = {"section": "Networks", "published": "2 times", "hardware": "a GPU", "how": "predicted"}
    return {**named, "here": "[gain]", "command": "", "gap": "none", **more}


def row(gpu: str, **ms: float) -> dict[str, Any]:
    every = dict.fromkeys(("waited", "ahead", "graph", *WITHOUT, "best"), 1.0) | ms
    return {"model": "ensemble", "gpu": gpu, "launches": 7, "date": "2026-01-02", "ms": every}


def test_the_page_is_what_the_command_writes_of_what_is_stored() -> None:
    assert PAGE.read_text() == page(CLAIMS, ROWS["gpus"], ROWS["cores"]), "python -m bench papers --stored"


def test_every_network_is_predicted_on_every_gpu_and_nothing_beats_the_best() -> None:
    assert [(one["model"], one["gpu"]) for one in ROWS["gpus"]] == [
        (name, gpu.product) for name in NETWORKS for gpu in GPUS
    ]
    for one in ROWS["gpus"]:
        ms = one["ms"]
        assert ms["waited"] > ms["ahead"] > ms["graph"] >= ms["best"] > 0
        assert all(ms[name] <= ms["graph"] for name in WITHOUT)
        assert all(ms["best"] <= ms[name] for name in ("early_start", "stages"))


def test_networks_are_simulated_on_each_number_of_cores() -> None:
    found = [(one["model"], one["cores"]) for one in ROWS["cores"]]
    assert found == [(name, count) for name, counts in ON_CORES.items() for count in counts]


def test_every_claim_says_how_it_was_got_and_names_a_command_that_there_is() -> None:
    for one in CLAIMS:
        assert one["published"]
        assert one["here"]
        assert one["how"].startswith(("measured, 2026-", "predicted", "each legalisation"))
        words = one["command"].split()
        assert not words or (words[:3] == ["python", "-m", "bench"] and words[3] in COMMANDS)


def test_rules_that_are_left_out_are_those_of_the_compiler() -> None:
    for _, without in WITHOUT.values():
        assert enabled_passes(sorted(without)).without_steps == without


def test_a_claim_is_filled_with_the_ratios_that_it_asks_for() -> None:
    asked = {"gain": {"gpu": RTX3090.name, "over": "waited", "by": "best", "models": ["ensemble"]}}
    rows = [row(RTX3090.product, waited=3.0, best=2.0), row(V100.product)]
    text = page([claim(ratios=asked)], rows, [])
    assert "| 2 times | a GPU | ensemble of three 1.50 | predicted |  | none |" in text
    assert "Predicted on 2026-01-02" in text
    with pytest.raises(KeyError):
        page([claim(ratios={"gain": {**asked["gain"], "models": ["squeezenet1_0"]}})], rows, [])
    with pytest.raises(KeyError, match="published"):
        page([{name: said for name, said in claim().items() if name != "published"}], rows, [])


def test_newer_rows_take_the_place_of_all_older_ones_of_the_same_network() -> None:
    old, kept = row(RTX3090.product), row(V100.product) | {"model": "squeezenet1_0"}
    new = [row(gpu.product, best=0.5) for gpu in GPUS]
    assert renewed([old, kept], new) == [kept, *new]
    assert renewed([], [kept]) == [kept]


def test_from_what_is_stored_the_page_alone_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PAGE", tmp_path / "papers.md")
    before = PREDICTED.stat().st_mtime_ns
    assert main(["--stored"]) == 0
    assert (tmp_path / "papers.md").read_text() == PAGE.read_text()
    assert PREDICTED.stat().st_mtime_ns == before
    assert main(["alexnet"]) == 2
    assert "name some of squeezenet1_0" in capsys.readouterr().err


def test_facts_for_predictions_are_no_target() -> None:
    with pytest.raises(TargetUnavailable, match="is unknown"):
        resolve(V100.name)


def test_kernels_side_by_side_on_more_cores_are_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headlines, "CORES", (1, 4))
    alone, shared = on_cores(from_zoo("tiny_inception", tmp_path))
    assert [alone["cores"], shared["cores"]] == [1, 4]
    assert len({*alone["ms"].values()}) == 1, "on one core there is one plan"
    assert all(0 < ms < 1.2 * alone["ms"]["in turn"] for ms in shared["ms"].values()), "each may stay on one core"


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_a_network_is_predicted_with_and_without_each_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The V100's facts stand for a slower device here."""
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    monkeypatch.setattr(headlines, "GPUS", (V100,))
    (found,) = predicted(from_zoo("tiny_cnn", tmp_path))
    assert (found["model"], found["gpu"], found["precision"]) == ("tiny_cnn", V100.product, "fp32")
    ms, count = found["ms"], found["launches"]
    assert ms["waited"] - ms["graph"] == pytest.approx(6.2e-3 * count, abs=2e-4)
    assert ms["ahead"] - ms["graph"] == pytest.approx(0.4e-3 * count, abs=2e-4)
    assert all(ms["best"] <= ms[name] <= ms["graph"] for name in ("early_start", "stages"))
