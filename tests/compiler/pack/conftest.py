"""A small program packed for real, around a library written by hand: the lowest seam of what an artifact is."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.tile import Cost
from compiler.pack.explanation import Entry, Explanation
from compiler.pack.facts import Facts
from compiler.pack.graphs import Step
from compiler.pack.joining import loader_source
from compiler.pack.pack import PackedArtifact, pack
from tests.parse import parse_graph, parse_kernel_graph, parse_plan

ROOT = Path(__file__).parents[3]
WEIGHTS = np.array([2, 3, 5], np.float32)

KERNELS = """
kernels(b0, b1) -> (b4, b5)
  b0: f32[2, 3] plain
  b1: i64[] plain
  b2: f32[3] plain
  b3: f32[2, 3] plain
  b4: f32[2, 3] plain
  b5: bool[2, 3] plain
  b2 = const {2.0, 3.0, 5.0}
  k0: kernel Mul(in x: f32[2, 3], in w: f32[3]; out y: f32[2, 3])
    for i:2, j:3
      y[i, j] = mul(x[i, j], w[j])
  b3 = k0(b0, b2) from "first"
  k1: kernel Cast_Add_Greater(in p: f32[2, 3], in n: i64[], in x: f32[2, 3]; out y: f32[2, 3], out z: bool[2, 3])
    for i:2, j:3
      y[i, j] = add(p[i, j], cast(n[]):f32)
      z[i, j] = gt(x[i, j], 0.0:f32)
  b4, b5 = k1(b3, b1, b0) from "second", "third"
"""
GRAPH = """
graph(%0: f32[2, 3] "x", %1: i64[] "n") -> (%4, %5)
  %2: f32[3] = const {2.0, 3.0, 5.0}
  %7: f32[] = const {0.0}
  %3: f32[2, 3] = Mul(%0, %2) from "first"
  %6: f32[] = Cast(%1) to="f32" from "second"
  %4: f32[2, 3] "y" = Add(%3, %6) from "second"
  %5: bool[2, 3] "z" = Greater(%0, %7) from "third"
"""
"""The graph of KERNELS."""
PLAN = """
plan 2 lanes, arena 64, "sequential", 4e-06 s
  call 0: 2 tiles of loops L1(i:1)
  call 1: 1 tiles of loops
  lane 0: call 0 tiles 0..1
  lane 1: call 0 tiles 1..2
  lane 0: call 1 tiles 0..1 after 1 of lane 1
  s0 at input 0, 24 bytes
  s1 at input 1, 8 bytes
  s2 at constant 0, 12 bytes
  s3 at arena 0, 24 bytes
  s4 at output 0, 24 bytes
  s5 at output 1, 6 bytes
"""


@dataclass(frozen=True)
class Parts:
    """The arguments of `pack`, but for the path."""

    program: Program
    plan: Plan
    kernels: KernelGraph
    records: tuple[Record, ...]
    facts: Facts
    others: tuple[Plan, ...] = ()

    def named(self, *names: str) -> Parts:
        """The same model with other names for its inputs, then its outputs."""
        ports = (*self.program.inputs, *self.program.outputs)
        renamed = [Port(name, port.type) for name, port in zip(names, ports, strict=True)]
        return replace(self, program=replace(self.program, inputs=tuple(renamed[:2]), outputs=tuple(renamed[2:])))

    def library(self, code: bytes) -> Parts:
        return replace(self, program=replace(self.program, library=code))

    def pack(self, path: Path) -> PackedArtifact:
        return pack(self.program, self.plan, self.kernels, self.records, self.facts, path, others=self.others, log="")


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """The library written by hand, compiled with the given flags."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "these tests need a C compiler"
    folder = tmp_path_factory.mktemp("library")

    def built(*flags: str) -> bytes:
        sources = [str(Path(__file__).parent / "model.c"), "-I", str(ROOT / "compiler" / "codegen")]
        target = folder / "model.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-o", str(target), *sources]
        subprocess.run(command, check=True, capture_output=True)
        return target.read_bytes()

    return built


@pytest.fixture(scope="session")
def parts(build: Callable[..., bytes]) -> Parts:
    kernels = parse_kernel_graph(KERNELS)
    kernels.verify()
    plan = parse_plan(PLAN)
    plan.verify(kernels)
    header = (ROOT / "compiler" / "codegen" / "model.h").read_text()
    program = Program(
        sources={"model.h": header, "model.c": "/* by hand */\n"},
        library=build(),
        weights=WEIGHTS.tobytes(),
        inputs=tuple(Port(name, kernels.buffers[id].type) for name, id in zip("xn", kernels.inputs, strict=True)),
        outputs=tuple(Port(name, kernels.buffers[id].type) for name, id in zip("yz", kernels.outputs, strict=True)),
        toolchain="cc 1.0; -O1",
        machine=platform.machine(),
    )
    record = Record(
        "kernel",
        "key",
        "Mul",
        "f32[2, 3]",
        "cpu",
        "hardware",
        {"algorithm": "loops"},
        2,
        3e-6,
        2.9e-6,
        3.2e-6,
        9,
        "0.1.0",
    )
    facts = Facts(
        model_digest="ab" * 32,
        options={"target": "cpu"},
        target="cpu",
        hardware="hardware",
        operators=3,
        kernels_before_fusion=4,
        costs=(Cost(3e-6, "record"), Cost(1e-6, "model")),
        model=(("opset", "20"),),
        steps=(("fuse", "4 kernels to 2"),),
        explanation=Explanation(
            applied=(
                Entry("merge", "x + x = 2 x", 2, "'first'", "saves 2 nodes"),
                Entry("fold", "2 3 = 6", 1, "Mul %3"),
            ),
            apart=(Entry("inline", "too wide", 4, "'c': Mul -> Conv"),),
        ),
        graphs=(Step("load", parse_graph(GRAPH)),),
        notices=("careful",),
    )
    return Parts(program, plan, kernels, (record,), facts)


@pytest.fixture
def artifact(parts: Parts, tmp_path: Path) -> Path:
    return parts.pack(tmp_path / "model.tw").path


def loader_of(path: Path) -> ModuleType:
    """The loader as a module of its own, from its file in an artifact."""
    spec = importlib.util.spec_from_file_location("tw_loader_under_test", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("loader") / "loader.py"
    path.write_text(loader_source())
    return loader_of(path)


@pytest.fixture
def guarded(parts: Parts, build: Callable[..., bytes], tmp_path: Path) -> Path:
    """An artifact with a second plan, without the first one's last task.

    Its library says that it takes the last plan.
    """
    other = replace(parts.plan, tasks=parts.plan.tasks[:2], scheduler="greedy", most_handover_s=1e-7)
    both = replace(parts.library(build("-DSEVERAL")), others=(other,))
    return Path(both.pack(tmp_path / "guarded.tw").path)
