"""Kernels whose buffers lie in memory as bf16, by every algorithm that takes such buffers."""

from __future__ import annotations

import math
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
from tests.compiler.devices.cpu.library import Case, Library, check, draws
from tests.parse import parse_kernel

HERE = [profile.name for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)]
EDGES = [0.0, -0.0, 2.8125, -2.8125, 3.0, 1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]
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


def error_functions(element: DType | None) -> Case:
    """erf, and Gelu made of it, of numbers as far as infinity; results in bf16, or not."""
    kernel = parse_kernel(
        "kernel Erf(in x: f32[4096]; out y: f32[4096], out z: f32[4096])\n  for i:4096\n"
        "    y[i] = erf(x[i])\n    z[i] = mul(x[i], add(erf(x[i]), 1.0:f32))"
    )
    x = np.linspace(-4, 4, 4096, dtype=np.float32)
    x[: len(EDGES)] = EDGES
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    return Case(kernel, (buffers[0], *(replace(one, element=element) for one in buffers[1:])), (x,))


@pytest.mark.parametrize("name", HERE)
def test_erf_for_results_in_bf16_is_off_by_less_than_they_are_rounded_by(name: str) -> None:
    target, case = resolve(name), error_functions(DType.BF16)
    library = Library.of([case], target, optimise="-O1")
    assert "tw_erf_bf16(" in library.lowered[0].text
    y, z = library.run(0, case)
    (x,) = case.inputs
    exact = np.vectorize(math.erf)(x.astype(np.float64))
    with np.errstate(invalid="ignore"):
        gelu = x * (exact + 1)
    for got, want in ((y, exact), (z, gelu)):
        assert np.array_equal(np.isfinite(got), np.isfinite(want))
        finite = np.isfinite(want)
        np.testing.assert_allclose(got[finite], want[finite], rtol=STEP, atol=3e-4)
    assert np.array_equal(np.signbit(y[:2]), [False, True])
    assert (y[6], y[7], y[8], y[9]) == (1, -1, 1, -1)


def test_erf_for_results_in_fp32_is_the_exact_one() -> None:
    case = error_functions(None)
    assert "tw_erf_bf16" not in lower("k", case.workload, case.tile, resolve("cpu:x86-64-v4-bf16")).text


def gelu_behind_a_product(element: DType | None) -> Case:
    """Gelu of numbers as far as infinity, each of which is a sum of it and zeros; results in bf16, or not."""
    kernel = parse_kernel(
        "kernel Gelu(in x: f32[256, 4], in w: f32[4, 16]; temp t: f32[256, 16], out y: f32[256, 16])\n"
        "  for m:256, n:16\n    t[m, n] = sum<f32> k:4 . mul(x[m, k], w[k, n])\n"
        "    y[m, n] = mul(mul(t[m, n], 0.5:f32), add(erf(mul(t[m, n], 0.7071067811865476:f32)), 1.0:f32))"
    )
    x, w = np.zeros((256, 4), np.float32), np.ones((4, 16), np.float32)
    x[:, 0] = np.linspace(-5, 5, 256, dtype=np.float32).astype(ml_dtypes.bfloat16)
    x[: len(EDGES), 0] = EDGES
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    case = Case(kernel, (*buffers[:2], replace(buffers[2], element=element)), (x, w))
    return replace(case, tile=bf16_tiles(case.workload, resolve("cpu:x86-64-v4-bf16"), 1)[0].tile)


@pytest.mark.parametrize("name", [name for name in HERE if "amx" not in name])
def test_gelu_for_results_in_bf16_is_off_by_less_than_they_are_rounded_by(name: str) -> None:
    case = gelu_behind_a_product(DType.BF16)
    library = Library.of([case], resolve(name), optimise="-O1")
    assert "tw_gelu_bf16(" in library.lowered[0].text
    assert "tw_erf" not in library.lowered[0].text
    (y,), x = library.run(0, case), case.inputs[0][:, :1].astype(ml_dtypes.bfloat16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) * np.ones(16)
    finite = np.isfinite(exact)
    assert np.array_equal(np.isfinite(y), finite)
    np.testing.assert_allclose(y[finite], exact[finite], rtol=STEP, atol=2e-4)
    assert np.array_equal(y[EDGES.index(-1e30)], np.zeros(16))


@pytest.mark.parametrize(("name", "element"), [("cpu:x86-64-v4-bf16", None), ("cpu:x86-64-v4-amx", DType.BF16)])
def test_gelu_is_made_of_erf_where_results_are_fp32_and_on_targets_with_tiles(name: str, element: DType | None) -> None:
    case = gelu_behind_a_product(element)
    text = lower("k", case.workload, case.tile, resolve(name)).text
    assert ("tw_gelu_bf16" in text, "tw_erf" in text) == (False, True)
