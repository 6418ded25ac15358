"""Kernels whose buffers lie in memory as bf16, by every algorithm that takes such buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms import BY_NAME
from compiler.devices.cpu.algorithms.bf16 import bf16_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.parse import parse_kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.algorithms import (
    test_attention,
    test_bf16,
    test_contraction,
    test_gemv,
    test_loops,
    test_separable,
    test_transpose,
    test_window,
    test_winograd,
)
from tests.compiler.devices.cpu.library import Case, check, draws

HERE = [profile.name for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)]
STEP = 2.0**-8
"""Twice what rounding a result to bf16 costs, relative to it."""


def families(target: CpuTarget) -> Mapping[str, st.SearchStrategy[Case | None]]:
    """Kernels under tiles of the algorithms that leave memory to emitters."""
    return {
        "attention": test_attention.cases(target),
        "bf16": test_bf16.cases(target, test_contraction.kernels()),
        "contraction": test_contraction.tiled(test_contraction.kernels(), target),
        "gemv": test_gemv.cases(target),
        "loops": st.one_of(test_loops.maps(), test_loops.reductions()),
        "separable": test_separable.cases(target),
        "transposes": test_transpose.cases(),
        "window": test_window.asked(target).map(lambda one: one.case),
        "winograd": test_winograd.cases(target).map(lambda one: one[1]),
    }


@st.composite
def short(draw: st.DrawFn, cases: st.SearchStrategy[Case | None]) -> Case | None:
    """A case of fp32 with some buffers that are no constants in bf16, its inputs rounded as they will be.

    None where there is none, or the algorithm of its tile does not take it.
    """
    case = draw(cases)
    if case is None or any(buffer.type.dtype is not DType.F32 for buffer in case.buffers):
        return None
    chosen = [draw(st.sampled_from([True, True, False])) and at not in case.constant for at in range(len(case.buffers))]
    buffers = tuple(
        replace(one, element=DType.BF16) if on else one for one, on in zip(case.buffers, chosen, strict=True)
    )
    inputs = tuple(
        array.astype(ml_dtypes.bfloat16).astype(np.float32) if on else array
        for array, on in zip(case.inputs, chosen, strict=False)
    )
    case = replace(case, buffers=buffers, inputs=inputs, tolerance=2 * STEP)
    return case if any(chosen) and BY_NAME[case.tile.algorithm].takes(case.workload) else None


def product(target: CpuTarget, depth: int) -> Case:
    """A product of rows in bf16 that lie densely along k."""
    kernel = parse_kernel(
        f"kernel Product(in x: f32[33, {depth}], in w: f32[{depth}, 40]; out y: f32[33, 40])\n  for m:33, n:40\n"
        f"y[m, n] = sum<f32> k:{depth} . mul(x[m, k], w[k, n])"
    )
    x, w, y = (Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    inputs = [
        np.random.default_rng(depth).uniform(-1, 1, slot.type.dims).astype(ml_dtypes.bfloat16).astype(np.float32)
        for slot in kernel.inputs
    ]
    buffers = (replace(x, element=DType.BF16), w, replace(y, element=DType.BF16))
    case = Case(kernel, buffers, tuple(inputs), constant=(1,), tolerance=STEP)
    return replace(case, tile=bf16_tiles(case.workload, target, 1)[0].tile)


@pytest.mark.parametrize("name", HERE)
def test_every_algorithm_that_takes_bf16_in_memory_rounds_its_results_and_nothing_else(name: str) -> None:
    target = resolve(name)
    drawn = []
    for family, cases in families(target).items():
        found = [case for case in draws(short(cases), 8) if case is not None]
        assert found, family
        drawn += found
    drawn += [product(target, depth) for depth in (24, 23, 2048)]
    staged = [lower("k", case.workload, case.tile, target).scratch_bytes > 0 for case in drawn[-3:]]
    assert staged == [False, True, True], "rows of whole groups are read where they lie, unless they share sets"
    assert {case.tile.algorithm for case in drawn} - {"gemv24"} == {*families(target)} - {"transposes"}
    texts = [lower(f"k{at}", case.workload, case.tile, target).text for at, case in enumerate(drawn)]
    assert any("_input_bf16(" in text for text in texts), "no tile of Winograd's is read in place"
    check(drawn, target, "-O1")
