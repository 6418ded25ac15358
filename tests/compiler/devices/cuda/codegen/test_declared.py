"""What lowerings declare of their launches is what their texts show, for every algorithm."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

import numpy as np
import pytest

from compiler.devices.cuda.algorithms import BY_NAME
from compiler.devices.cuda.codegen.entry import SM90, SM90A
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.side_by_side import can_share, side_by_side
from compiler.devices.cuda.target import resolve
from compiler.encodings.encoding import DENSE
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.parsing.parse import parse_workload
from tests.compiler.devices.cuda.algorithms.test_integer import SMALL, product
from tests.compiler.devices.cuda.on_double import workload_of
from tests.gpu.kernels import PRECISIONS, subjects

H200 = resolve("cuda:sm_90")
TOP = """workload
  routine TopK topk(in x: f32[3, 40]; out y: f32[3, 4], out z: i64[3, 4]) {axis=1 k=4 largest=True}
  input b0: f32[3, 40] plain
  output b0: f32[3, 4] plain
  output b0: i64[3, 4] plain"""
TURN = """workload
  kernel Transpose(in x: f32[160, 96]; out y: f32[96, 160])
    for i:160, j:96
      y[j, i] = x[i, j]
  input b0: f32[160, 96] plain
  output b0: f32[96, 160] plain"""
OF_THE_LAUNCH = re.compile(r"\b(blockIdx|blockDim|gridDim|tw_registers_\w+)\b")
SPECIFIC = re.compile(r"\bTW_SM90A\b|\btw_(wgmma|registers)_\w+")
"""What sm_90a alone has."""
ELSEWHERE = re.compile(r"cooperative_groups|CUtensorMap|__grid_constant__|\bthis_grid\b")
"""What no launch of ours gives a kernel."""


@lru_cache(maxsize=1)
def of_sm90() -> re.Pattern[str]:
    """A use of a function that tw_cuda.h has for sm_90 and later alone."""
    header = (files("compiler.devices.cuda.runtime") / "tw_cuda.h").read_text()
    section = header[header.index("#if TW_SM90 /* =") : header.index("#endif /* sm_90 */")]
    names = set(re.findall(r"\bTW_DEVICE\b[^;{(]*?\b(tw_\w+)\(", section))
    return re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")


@lru_cache(maxsize=1)
def lowered() -> tuple[tuple[str, CudaLowered], ...]:
    """Kernels of small networks under a few tiles of each algorithm, with the algorithm's name."""
    found = [(one.tile.algorithm, one.lowered) for kind in PRECISIONS for one in subjects(H200, kind)]
    bytes_ = workload_of(product(np.zeros((196, 256), np.uint8), np.zeros((256, 64), np.int8), 3, 0, SMALL))
    encodings = tuple((DENSE, *[TwoOfFour.of(0)] * (at == 1)) for at in range(len(bytes_.inputs)))
    others = (
        *(("routine", parse_workload(TOP)), ("transpose", parse_workload(TURN)), ("integer", bytes_)),
        ("sparse_integer", replace(bytes_, encodings=encodings)),
    )
    for name, workload in others:
        tiles = [proposal.tile for proposal in BY_NAME[name].tiles(workload, H200, "fp32")]
        found += [(name, lower_cuda("k0", workload, tile, H200)) for tile in tiles[:5]]
    return tuple(found)


def check(kernel: CudaLowered) -> None:
    """Each declaration beside what the text shows."""
    text, signature = kernel.text, kernel.text[kernel.text.index('extern "C"') :].split("{", 1)[0]
    body = text[: text.index('extern "C"')]
    assert kernel.waits == ("tw_grid_dependency_wait();" in text)
    assert kernel.is_specific == bool(SPECIFIC.search(text)) == ("#if TW_SM90A" in text)
    assert (kernel.needs >= SM90) == (bool(of_sm90().search(text)) or kernel.is_specific)
    assert set(re.findall(r"#if (\w+)", text)) <= {kernel.needs}
    assert (not kernel.tiles) == bool(OF_THE_LAUNCH.search(body))
    # A cluster of one block is launched as any other kernel, though its text is that of clusters.
    assert kernel.cluster == 1 or re.search(r"\btw_cluster_\w+", text)
    assert (kernel.shared_bytes > 0) == ("tw_dynamic_shared()" in text)
    assert (kernel.scratch_bytes > 0) == bool(re.search(r"\bscratch", signature))
    assert (kernel.counters > 0) == bool(re.search(r"\bcounters", signature))
    assert not ELSEWHERE.search(text)


# A region has kernels of other algorithms; its own two are judged in test_decisions.
@pytest.mark.parametrize("algorithm", sorted({*BY_NAME} - {"region"}))
def test_what_an_algorithm_declares_is_what_its_text_shows(algorithm: str) -> None:
    kernels = [kernel for name, kernel in lowered() if name == algorithm]
    assert kernels, f"{algorithm} is not among the kernels tried"
    for kernel in kernels:
        try:
            check(kernel)
        except AssertionError as error:
            raise AssertionError(f"{kernel.name}: {error}\n{kernel.text}") from error


def test_every_declaration_is_made_by_some_kernel() -> None:
    kernels = [kernel for _, kernel in lowered()]
    assert {kernel.needs for kernel in kernels} == {"", SM90, SM90A}
    for declared in ("shared_bytes", "scratch_bytes", "counters"):
        assert {getattr(kernel, declared) > 0 for kernel in kernels} == {False, True}, declared
    assert {kernel.cluster > 1 for kernel in kernels} == {False, True}


def test_kernels_side_by_side_declare_what_their_members_do() -> None:
    shared = 0
    for needs in ("", SM90, SM90A):
        alike = [kernel for _, kernel in lowered() if kernel.needs == needs and kernel.grid]
        plain = next(kernel for _, kernel in lowered() if not kernel.needs and kernel.grid and kernel.tiles)
        for kernel in alike[:20]:
            if kernel is not plain and can_share([kernel, plain]):
                shared += 1
                check(side_by_side("s0_kernels", [kernel, plain]))
    assert shared > 10
