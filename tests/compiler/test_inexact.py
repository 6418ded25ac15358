"""Algorithms that spend a part of the tolerance, and what happens when they spend too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.contract import CompileOptions, Event
from compiler.errors import Disagreement
from compiler.forms.int24_panels import Int24Panels
from compiler.forms.winograd import TransformedPanels
from tests.compiler.networks import Network
from tests.compiling import compile_file

OPTIONS = CompileOptions(weights="ready", threads=1, tuning_budget_s=0, tolerance=4e-6)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A 3 x 3 convolution of 96 channels between two that are wide enough to be worth a layout.

    No two are one linear map.
    """
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 20, 20), net.weight(96, 8, 1, 1)], (1, 96, 20, 20), kernel_shape=[1, 1])
    x = net.node("Relu", [x], (1, 96, 20, 20))
    weights = net.weight(96, 96, 3, 3)
    x = net.node("Conv", [x, weights], (1, 96, 20, 20), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = net.node("Relu", [x], (1, 96, 20, 20))
    x = net.node("Conv", [x, net.weight(16, 96, 1, 1)], (1, 16, 20, 20), kernel_shape=[1, 1])
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def algorithms(folder: Path) -> list[set[str]]:
    """Those of each tiling that was tried."""
    texts = [
        path.read_text() for path in sorted(folder.glob("*_tile.txt"), key=lambda path: int(path.name.split("_")[0]))
    ]
    return [{name for name in ("contraction", "winograd") if f" {name} " in text} for text in texts]


def test_a_part_of_the_tolerance_buys_fewer_multiplications(model: Path, tmp_path: Path) -> None:
    report = compile_file(model, tmp_path / "model.tw", OPTIONS, dump=tmp_path / "dump")
    assert algorithms(tmp_path / "dump") == [{"contraction", "winograd"}]
    assert max(error.max_relative for error in report.errors) < 4e-6
    assert not report.notices


def test_what_spent_too_much_is_made_again_without(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = TransformedPanels.pack
    monkeypatch.setattr(TransformedPanels, "pack", lambda self, constant: right(self, constant) * np.float32(1.0001))
    events: list[Event] = []
    report = compile_file(model, tmp_path / "model.tw", OPTIONS, observe=events.append, dump=tmp_path / "dump")
    assert algorithms(tmp_path / "dump") == [{"contraction", "winograd"}, {"contraction"}]
    assert max(error.max_relative for error in report.errors) < 4e-6
    assert [notice for notice in report.notices if "compiled again without winograd" in notice]
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert (tmp_path / "model.tw").exists()


def test_weights_of_24_bits_are_widened_again_when_they_spent_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network()
    onnx.save(net.model([net.node("MatMul", [net.input(1, 512), net.weight(512, 512)], (1, 512))]), tmp_path / "m.onnx")
    options = CompileOptions(threads=1, tuning_budget_s=0)
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", options, dump=tmp_path / "first")
    assert [" gemv24 " in path.read_text() for path in (tmp_path / "first").glob("*_tile.txt")] == [True]
    right = Int24Panels.pack
    monkeypatch.setattr(Int24Panels, "pack", lambda self, constant: right(self, constant * np.float32(1.01)))
    report = compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", options)
    assert [notice for notice in report.notices if "compiled again without gemv24" in notice]
    assert max(error.max_relative for error in report.errors) < 1e-5


def test_what_is_measured_in_both_rounds_shares_one_budget(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = TransformedPanels.pack
    monkeypatch.setattr(TransformedPanels, "pack", lambda self, constant: right(self, constant) * np.float32(1.0001))
    events: list[Event] = []
    options = replace(OPTIONS, tuning_budget_s=600, tuning_trials=1)
    report = compile_file(model, tmp_path / "model.tw", options, observe=events.append)
    records = [event.data for event in events if event.kind == "record"]
    assert [notice for notice in report.notices if "compiled again without winograd" in notice]
    assert report.records_measured == sum(record["kind"] == "kernel" for record in records) == 1
    assert report.records_reused == 0
    again: list[Event] = []
    compile_file(model, tmp_path / "model.tw", options, records, observe=again.append)
    assert not [event for event in again if event.kind == "record"]


def test_what_is_wrong_without_them_too_fails(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.tuning.error_budget.SHARE", 1e6)
    with pytest.raises(Disagreement):
        compile_file(model, tmp_path / "model.tw", CompileOptions(threads=1, tuning_budget_s=0, tolerance=1e-9))
    assert not (tmp_path / "model.tw").exists()
