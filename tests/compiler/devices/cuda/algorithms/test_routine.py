"""Routines in CUDA C++, run on the double."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.routine.lowering import cuda_routine_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.errors import InternalError
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.algorithms.test_routine import TOP, subjects, top_k
from tests.compiler.devices.cpu.library import Case, array_of
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, run
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Mode, compile_kernels

H200 = resolve("cuda:sm_90")
LONG = {"f32": 5000, "u8": 6000, "f64": 2100, "i64": 3000, "f16": 4500}
"""Rows of these lengths do not fit in shared memory."""


def lowered(found: list[tuple[Node, Case]]) -> list[Subject]:
    return [
        Subject(case, lower_cuda(f"k{at}_topk", case.workload, Tile("routine"), H200))
        for at, (_, case) in enumerate(found)
    ]


def check(found: list[tuple[Node, Case]], flavour: str = "plain", modes: tuple[Mode, ...] = ADVERSARIAL) -> None:
    all = lowered(found)
    module = compile_kernels(PREAMBLE + "\n".join(subject.lowered.text for subject in all), flavour)
    for mode in modes:
        with Device(module, mode) as device:
            for subject, (node, case) in zip(all, found, strict=True):
                expected = TOP.reference(node, case.inputs)
                for got, want in zip(run(device, subject), expected, strict=True):
                    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8), err_msg=str(subject))


def long_rows() -> list[tuple[Node, Case]]:
    """Rows with many equal elements, NaN and both zeros, of which few, many, or all are wanted."""
    random = np.random.default_rng(5)
    found = []
    for dtype, extent in LONG.items():
        for k, largest, inner in ((1, 1, 1), (50, 0, 2), (extent - 3, 1, 1), (extent, 0, 1)):
            x = np.round(90 * array_of(TensorType(DType(dtype), (2, extent, inner)), random)).astype(DType(dtype).numpy)
            if DType(dtype).is_float:
                x.flat[random.integers(x.size, size=9)] = [
                    np.nan,
                    np.inf,
                    -np.inf,
                    0.0,
                    -0.0,
                    np.nan,
                    1e-40,
                    -1e-40,
                    -0.0,
                ]
            found.append(top_k(x, k, 1, largest, 2))
    return found


@needs_double
def test_TopK_is_its_reference_with_nan_ties_and_either_number_of_outputs() -> None:
    check(list(subjects()))


@needs_double
def test_rows_that_fit_are_sorted_whole() -> None:
    random = np.random.default_rng(7)
    check([top_k(np.round(random.normal(size=(3, n)), 1), min(n, 9), 1, n % 2, 2) for n in (1, 2, 31, 64, 1000, 2048)])


@needs_double
def test_the_first_of_long_rows_are_found_by_counting_digits() -> None:
    found = long_rows()
    assert all("tw_select_row" in subject.lowered.text for subject in lowered(found))
    assert {subject.lowered.scratch_bytes > 0 for subject in lowered(found)} == {True, False}
    check(found, modes=MODES[2:3])


@needs_double
def test_threads_do_not_race() -> None:
    random = np.random.default_rng(9)
    short = top_k(np.round(random.normal(size=(2, 70)), 1).astype(np.float32), 5, 1, 1, 2)
    long = top_k(np.round(random.normal(size=(1, 4100)), 1).astype(np.float32), 5, 1, 0, 2)
    check([short, long], "checked", MODES[4:5])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    all = lowered([*list(subjects())[::3], *long_rows()[::3]])
    source = PREAMBLE + "\n".join(subject.lowered.text for subject in all)
    compiled = nvrtc.compile_cuda(source, architecture, "topk.cu")
    assert compiled.kernels.keys() == {subject.lowered.name for subject in all}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log


def test_the_tile_of_a_routine_is_its_hand_written_form() -> None:
    _, case = top_k(np.zeros((2, 3), np.float32), 2, 1, 1, 2)
    (proposal,) = cuda_routine_tiles(case.workload, H200, "fp16")
    assert lower_cuda("k0_topk", case.workload, proposal.tile, H200).grid == 2


def test_a_routine_refuses_a_buffer_that_is_not_plain() -> None:
    _, case = top_k(np.zeros((2, 3, 4), np.float32), 2, 1, 1, 2)
    turned = Buffer.whole(0, case.buffers[0].type, Layout.channels_last(3))
    case = replace(case, buffers=(turned, *case.buffers[1:]))
    with pytest.raises(InternalError, match="plain buffers"):
        lower_cuda("k0_topk", case.workload, Tile("routine"), H200)


def test_a_routine_without_a_cuda_form_is_refused() -> None:
    _, case = top_k(np.zeros((2, 3), np.float32), 2, 1, 1, 2)
    unknown = replace(cast(Routine, case.kernel), name="unique")
    with pytest.raises(InternalError, match="no CUDA form"):
        lower_cuda("k0_unique", replace(case, kernel=cast(Kernel, unknown)).workload, Tile("routine"), H200)
