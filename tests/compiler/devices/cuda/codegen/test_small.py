"""Kernels that store and load small types, in CUDA C++: on the double bit by bit, and compiled by NVRTC."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.evaluate import evaluate
from compiler.ir.small import BITS, FLOATS, ROUNDINGS
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.codegen.test_small import conversion
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, run, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.small_values import codes, given, read_as, same_bits
from tests.cuda_double.double import Device, compile_kernels

H200 = resolve("cuda:sm_90")
FROM = (DType.BOOL, DType.I8, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64)


def conversions() -> list[Case]:
    found = []
    for small in BITS:
        found += [conversion(given(source, small), small, how) for source in FROM for how in ("cast", "saturate")]
        found += [conversion(codes(small), target) for target in read_as(small)]
        found.append(conversion(codes(small), DType.F16, "saturate"))
    e8m0 = DType.F8E8M0
    found += [conversion(given(DType.F32, e8m0), e8m0, "saturate", rounding) for rounding in ROUNDINGS[1:]]
    found += [conversion(codes(one), other, "saturate") for one in FLOATS for other in (DType.I4, DType.U2)]
    return found


def subjects(cases: list[Case]) -> list[Subject]:
    lowered = [lower_cuda(f"k{at}_case", workload_of(case), Tile("loops"), H200) for at, case in enumerate(cases)]
    return [Subject(case, kernel) for case, kernel in zip(cases, lowered, strict=True)]


@needs_double
def test_conversions_give_the_bits_that_they_mean() -> None:
    every = subjects(conversions())
    module = compile_kernels(PREAMBLE + "\n".join(subject.lowered.text for subject in every), "plain", "small.cu")
    assert len(every) > 200
    with Device(module, ADVERSARIAL[0]) as device:
        for subject in every:
            with np.errstate(all="ignore"):
                (want,) = evaluate(subject.case.kernel, subject.case.inputs)
            assert same_bits(run(device, subject)[0], want), str(subject)


@needs_double
def test_a_buffer_kept_in_16_bits_becomes_a_small_type() -> None:
    """Elements in memory are of another type than the arithmetic."""
    case = conversion(np.array([0.3, -1.7, 500.0, 0.0], np.float32), DType.F8E4M3FN, "saturate")
    stored = replace(case, buffers=(stored_as(case.buffers[0], DType.F16), case.buffers[1]))
    (subject,) = subjects([stored])
    module = compile_kernels(PREAMBLE + subject.lowered.text, "plain", "small_stored.cu")
    with Device(module, ADVERSARIAL[0]) as device:
        (got,) = run(device, subject)
    assert got.astype(np.float32).tolist() == [0.3125, -1.75, 448.0, 0.0]


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them(architecture: str) -> None:
    some = subjects(conversions()[::17])
    text = PREAMBLE + "\n".join(subject.lowered.text for subject in some)
    compiled = nvrtc.compile_cuda(text, architecture)
    assert len(compiled.kernels) == len(some)
    assert not any(kernel.spills for kernel in compiled.kernels.values())
