from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
import pytest

from bench.zoo import build
from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import PROFILES, CpuTarget, this_machine
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.target import CudaTarget
from compiler.devices.kinds import propose
from compiler.errors import SourceUnavailable
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.storage import with_storage
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.source import source_of
from compiler.tuning.tune import workload_key
from tests.compiler.backend_cases import by_operator
from tests.compiler.backend_cases import loaded as loaded_case

NETWORKS = ("tiny_cnn", "tiny_detector", "tiny_inception", "tiny_lstm", "tiny_transformer")


def fused_workloads(name: str) -> Iterator[Workload]:
    """Each distinct workload of a network, as its tuning records would name them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(build(name), path)
        kernels = fuse(rewrite(load(path, CompileOptions(), OPERATORS).graph).graph).kernels
    workloads = [workload_of(kernels, call) for call in kernels.calls]
    yield from {workload_key(workload): workload for workload in workloads}.values()


@lru_cache(maxsize=4)
def kernels_by_precision(name: str) -> Mapping[str, KernelGraph]:
    """A network's kernels for CUDA targets."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(build(name), path)
        kernels = fuse(rewrite(load(path, CompileOptions(), OPERATORS).graph).graph).kernels
    return {"fp32": kernels, "fp16": with_storage(kernels, DType.F16)}


@pytest.fixture(scope="module")
def workloads() -> list[Workload]:
    return [workload for name in NETWORKS for workload in fused_workloads(name)]


def test_every_workload_of_the_small_networks_reads_back_to_its_key(workloads: list[Workload]) -> None:
    assert len(workloads) >= 40
    for workload in workloads:
        again = parse_workload(str(workload))
        assert again == workload
        assert workload_key(again) == workload_key(workload)


def test_every_operators_definition_reads_back_to_its_key() -> None:
    """Routines, odd dtypes, infinities and NaN among the constants.

    One conformance case of each operator, node by node.
    """
    seen = set()
    for cases in by_operator().values():
        try:
            graph, _, _ = loaded_case(cases[0], cases[0].data_sets[0][0])
        except Exception:  # the front end's refusals have tests of their own
            continue
        for node in graph.nodes:
            types = tuple(None if id is None else graph.type(id) for id in node.inputs)
            kernel = OPERATORS[node.op].define(node, types, tuple(graph.type(id) for id in node.outputs))
            inputs = tuple(Buffer.whole(0, slot.type) for slot in kernel.inputs)
            outputs = tuple(Buffer.whole(0, slot.type) for slot in kernel.outputs)
            workload = Workload(kernel, inputs, outputs, (False,) * len(inputs))
            workload.verify()
            assert workload_key(parse_workload(str(workload))) == workload_key(workload), workload
            seen.add(node.op)
    assert len(seen) > 100
    assert "TopK" in seen


@pytest.fixture(scope="module")
def generated() -> set[object]:
    """What sources were generated from: profiles of one architecture have most tiles in common."""
    return set()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_record_of_every_profile_has_a_source(
    profile: CpuTarget, workloads: list[Workload], generated: set[object]
) -> None:
    """Each tile of a workload for an architecture, and each algorithm for all that differ in their instructions."""
    instructions = (profile.machine, profile.features, profile.vector_floats, profile.vector_registers)
    for number, workload in enumerate(workloads):
        options = propose(workload, profile, 2)
        assert options
        for option in options:
            variant = json.loads(json.dumps({**option.tile.to_json(), "lanes": 1}, sort_keys=True))
            of_tile = (number, json.dumps(variant), profile.machine)
            of_algorithm = (number, option.tile.algorithm, instructions)
            if number and {of_tile, of_algorithm} <= generated:  # of the first one, each profile by its name
                continue
            generated |= {of_tile, of_algorithm}
            source = source_of(str(workload), variant, profile.name)
            assert source.startswith('#include "tw_kernel.h"\n')
            assert "(void *const *p, char *scratch, long begin, long end) {" in source


def test_a_source_is_what_the_c_compiler_takes(workloads: list[Workload]) -> None:
    target = this_machine()
    chosen = [workload for workload in workloads if propose(workload, target, 1)[0].tile.algorithm == "contraction"][:3]
    assert len(chosen) == 3
    sources = {
        f"{number}.c": source_of(str(workload), propose(workload, target, 1)[0].tile.to_json(), target.name)
        for number, workload in enumerate(chosen)
    }
    names = {source.split("(void *const")[0].split()[-1] for source in sources.values()}
    if len(names) == len(sources):  # equal kernels of two networks would carry one name
        assert build_library(sources, target, find_toolchain(), optimise="-O0")
    for source in sources.values():
        assert build_library({"one.c": source}, target, find_toolchain(), optimise="-O0")


@pytest.mark.parametrize("profile", cuda.PROFILES, ids=lambda profile: profile.name)
def test_the_favourite_of_every_cuda_profile_has_a_source(profile: CudaTarget) -> None:
    """In fp32, and with elements of fp16 in memory."""
    for name in ("tiny_cnn", "tiny_transformer"):
        by_precision = kernels_by_precision(name)
        assert by_precision
        for precision, kernels in by_precision.items():
            assert kernels.calls
            for call in kernels.calls:
                workload = cuda_workload_of(kernels, call)
                tile = propose(workload, profile, 1, precision=precision)[0].tile
                source = source_of(str(workload), json.loads(json.dumps(tile.to_json(), sort_keys=True)), profile.name)
                assert source.startswith('#include "tw_cuda.h"\n')
                assert source.count('extern "C" __global__ void') == 1


MAP = """workload
  kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7])
    for i:5, j:7
      y0[i, j] = max(x0[i, j], 0.0:f32)
  input b0: f32[5, 7] plain
  output b0: f32[5, 7] plain"""
LOOPS = Tile("loops").to_json()


@pytest.mark.parametrize(
    ("text", "variant", "target", "says"),
    [
        ("", LOOPS, "cpu:x86-64-v3", "cannot be read"),
        (MAP[:-9], LOOPS, "cpu:x86-64-v3", "cannot be read"),
        (MAP.replace("b0: f32[5, 7] plain", "b0: f32[7, 5] plain", 1), LOOPS, "cpu:x86-64-v3", "not consistent"),
        (MAP.replace("y0[i, j] =", "y0[i] ="), LOOPS, "cpu:x86-64-v3", "not consistent"),
        (MAP + " strides (1)", LOOPS, "cpu:x86-64-v3", "not consistent"),
        (MAP, {}, "cpu:x86-64-v3", "cannot be read"),
        (MAP, {**LOOPS, "algorithm": "magic"}, "cpu:x86-64-v3", "cannot be read"),
        (MAP, {**LOOPS, "algorithm": "contraction"}, "cpu:x86-64-v3", "cannot be read"),
        (MAP, {**LOOPS, "algorithm": "routine"}, "cpu:x86-64-v3", "cannot be read"),
        (MAP, {**LOOPS, "levels": "L1"}, "cpu:x86-64-v3", "cannot be read"),
        (MAP, LOOPS, "cpu:abacus", "cpu:abacus"),
        (MAP, LOOPS, "", "unknown"),
        ("workload kernel f(in x: f32[2]) [" + "(" * 20_000, LOOPS, "cpu:x86-64-v3", "cannot be read"),
    ],
)
def test_what_no_source_can_be_generated_from_is_the_callers_fault(
    text: str, variant: dict[str, Any], target: str, says: str
) -> None:
    assert "void k0_relu(" in source_of(MAP, LOOPS, "cpu:aarch64")
    with pytest.raises(SourceUnavailable, match=says) as caught:
        source_of(text, variant, target)
    assert caught.value.fault == "caller"
    assert caught.value.fix
