"""An algorithm, or an encoding, is its module and a list: made up here, they go through whole compilations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bench.zoo import build
from compiler import encodings
from compiler.contract import CompileOptions
from compiler.devices.cpu import algorithms
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.loops import LOOPS
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.encoding import Encoding, Use
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Tile
from compiler.pack.loader import Model
from compiler.tuning.proposal import Proposal
from tests.compiler.networks import Network
from tests.compiling import compile_file

NAME, FASTER = "made_up", 0.5


def test_an_algorithm_is_its_module_and_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []

    def tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
        """As plain loops have them, and by the model in half of the time."""
        return [
            replace(one, tile=replace(one.tile, algorithm=NAME), seconds=FASTER * one.seconds)
            for one in LOOPS.tiles(workload, target, lanes)
        ]

    def lower(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
        lowered.append(tile.algorithm)
        return LOOPS.lower(name, workload, tile, target)

    made_up = Algorithm((NAME,), tiles, lower, takes=any_short)
    monkeypatch.setattr(algorithms, "ALGORITHMS", (made_up, *algorithms.ALGORITHMS))
    monkeypatch.setattr(algorithms, "BY_NAME", {**algorithms.BY_NAME, NAME: made_up})
    (tmp_path / "net.onnx").write_bytes(build("tiny_cnn").SerializeToString())
    report = compile_file(tmp_path / "net.onnx", tmp_path / "net.tw", CompileOptions(threads=1, tuning_budget_s=0))
    assert NAME in lowered
    assert all(error.max_relative <= report.tolerance for error in report.errors)
    with Model(tmp_path / "net.tw") as model:
        assert model.run(model.random_inputs())


@dataclass(frozen=True)
class Even(Encoding):
    """Floats that are even numbers."""

    begins = "even"

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Even, ...]:
        is_even = constant.dtype == np.float32 and bool((constant % 2 == 0).all())
        return (cls.read(cls.begins),) if is_even and use in (Use.ONCE, Use.PRODUCT) else ()

    @classmethod
    def read(cls, word: str) -> Even:
        if word != cls.begins:
            raise ValueError(f"`{word}` is no encoding of even numbers")
        return Even(word, word)


def test_an_encoding_is_its_module_and_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "ENCODINGS", (*encodings.ENCODINGS, Even))
    net = Network()
    even, odd = (net.constant(np.full((48, 40), value, np.float32)) for value in (2.0, 3.0))
    outputs = [net.node("MatMul", [net.input(7, 48), one], (7, 40)) for one in (even, odd)]
    (tmp_path / "net.onnx").write_bytes(net.model(outputs).SerializeToString())
    told: list[tuple[bool, ...]] = []

    def takes(workload: Workload) -> bool:
        assert parse_workload(str(workload)) == workload
        told.append(tuple(any(isinstance(one, Even) for one in each) for each in workload.encodings))
        return False

    made_up = Algorithm((NAME,), LOOPS.tiles, LOOPS.lower, takes=takes)
    monkeypatch.setattr(algorithms, "ALGORITHMS", (made_up, *algorithms.ALGORITHMS))
    report = compile_file(tmp_path / "net.onnx", tmp_path / "net.tw", CompileOptions(threads=1, tuning_budget_s=0))
    assert all(error.max_relative <= report.tolerance for error in report.errors)
    assert (False, True) in told
    assert (False, False) in told
