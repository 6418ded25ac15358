"""Few rows times a constant matrix on a GPU, on the double: every dtype, every way to share out k and columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import gemv as cu_gemv
from compiler.devices.cuda.algorithms.gemv import cuda_gemv_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.forms.contraction import Contraction
from compiler.forms.gemv import MAX_ROWS, as_gemv
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_gemv import few_rows
from tests.compiler.devices.cpu.library import Case, bound, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_window import (
    ELEMENTS,
    H200,
    around_the_wait,
    needs_disassembler,
    subject,
)
from tests.compiler.devices.cuda.on_double import case_of, needs_double, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, needs_nvrtc
from tests.cuda_double.double import MODES, Device, compile_kernels

CLASSIFIER = """
kernel Gemm(in x: f32[{rows}, {depth}], in w: f32[{columns}, {depth}], in b: f32[{columns}]; temp t: f32[]; out y: f32[{rows}, {columns}])
  for m:{rows}, n:{columns}
    t[] = sum<f32> k:{depth} . mul(x[m, k], w[n, k])
    y[m, n] = max(add(t[], b[n]), 0.0:f32)
"""


@st.composite
def products(draw: st.DrawFn) -> Case:
    """A product of few rows in any layout and mixture of dtypes, under any legal tile."""
    case: Case = replace(draw(few_rows().flatmap(bound)), constant=(1,))
    case = replace(case, buffers=tuple(stored_as(one, draw(st.sampled_from(ELEMENTS))) for one in case.buffers))
    options = [option.tile for option in cuda_gemv_tiles(workload_of(case), H200, "fp16")]
    assume(options)
    split = [tile for tile in options if tile.extent("grid", "k")]
    shared_out = draw(st.booleans())
    chosen = split if split and shared_out else options
    return replace(case, tile=draw(st.sampled_from(chosen)))


@needs_double
def test_products_of_few_rows_are_right_under_every_tile() -> None:
    drawn = draws(products(), 60)
    assert {case.tile.extent("grid", "k", 1) > 1 for case in drawn} == {True, False}
    assert {case.tile.extent("warp", "lanes") for case in drawn} >= {1, 2, 8}
    assert {case.kernel.outputs[0].type.dims[0] for case in drawn} == {1, 2, 3, MAX_ROWS}
    on_double.check([subject(case, number) for number, case in enumerate(drawn)])


def classifier(rows: int, columns: int, depth: int, element: DType | None, at: int = 0) -> Case:
    """A fully connected layer under one of the tiles that the model likes best."""
    text = CLASSIFIER.format(rows=rows, columns=columns, depth=depth)
    case = case_of(text, constant=(1, 2), element=element, seed=depth)
    options = cuda_gemv_tiles(workload_of(case), H200, "fp16")
    return replace(case, tile=options[min(at, len(options) - 1)].tile)


LAYERS = [
    classifier(1, 1000, 1280, DType.F16),
    classifier(1, 250, 1056, DType.BF16, 3),
    classifier(1, 24, 72, DType.F16),
    classifier(1, 72, 24, None),
    classifier(1, 5, 2048, DType.F16),
    classifier(2, 40, 1024, None, 2),
    classifier(4, 60, 520, DType.F16, 5),
]


@needs_double
@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_layers_of_networks_are_right_under_the_tiles_the_model_likes_best(flavour: str) -> None:
    cases = LAYERS if flavour == "plain" else LAYERS[1:]
    on_double.check([subject(case, number) for number, case in enumerate(cases)], flavour)


BEYOND = """
kernel Gemm(in x: f32[2, {depth}], in w: f32[{columns}, {depth}]; temp t: f32[]; out y: f32[2, {columns}])
  for m:2, n:{columns}
    t[] = sum<f32> k:{depth} . mul(x[m, k], w[n, k])
    y[m, n] = add(t[], 1.0:f32)
"""


@needs_double
@pytest.mark.parametrize("columns", [5, 7, 30, 61])
def test_nothing_is_stored_for_the_columns_that_only_fill_up_a_block(columns: int) -> None:
    """They would not be zero: the map after the product adds one."""
    case = case_of(BEYOND.format(columns=columns, depth=96), constant=(1,), element=None, seed=columns)
    tiles = [option.tile for option in cuda_gemv_tiles(workload_of(case), H200, "fp16")]
    packings = [cu_gemv.packing_for(view_of(case), workload_of(case), tile)[1] for tile in tiles]
    filled = [tile for tile, packing in zip(tiles, packings, strict=True) if packing.columns > columns]
    assert filled
    chosen = filled[:: max(len(filled) // 4, 1)]
    on_double.check([subject(replace(case, tile=tile), number) for number, tile in enumerate(chosen)])


def view_of(case: Case) -> Contraction:
    view = as_gemv(workload_of(case))
    assert view is not None
    return view


@needs_double
def test_blocks_that_share_a_column_add_up_in_one_order() -> None:
    """Whoever comes last, the bits are the same: every mode of the double gives what the first gave."""
    levels = (Level("grid", (("k", 8),)), Level("block", (("threads", 64),)), Level("warp", (("lanes", 32),)))
    tile = Tile("gemv", (*levels, Level("thread", (("n", 1),))))
    one = subject(replace(classifier(1, 6, 4096, None), tile=tile), 0)
    module = compile_kernels(PREAMBLE + one.lowered.text)
    results = []
    for mode in MODES:
        with Device(module, mode) as device:
            results.append(on_double.run(device, one)[0])
    assert one.lowered.counters == 3
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_rows_whose_offsets_an_int_cannot_count_are_left_to_others() -> None:
    case = classifier(2, 40, 1024, None)
    apart = replace(case.buffers[0], strides=(2**31, 1))
    assert not cuda_gemv_tiles(workload_of(replace(case, buffers=(apart, *case.buffers[1:]))), H200, "fp32")


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_best_tiles_compile_without_spills(architecture: str) -> None:
    source = PREAMBLE + "".join(subject(case, number).lowered.text for number, case in enumerate(LAYERS))
    compiled = nvrtc.compile_cuda(source, architecture)
    assert "warning" not in compiled.log, compiled.log
    assert len(compiled.kernels) == len(LAYERS)
    assert not [name for name, found in compiled.kernels.items() if found.spills or found.stack_bytes]


@needs_nvrtc
@needs_disassembler
def test_the_matrix_is_requested_before_the_wait_and_by_16_bytes(tmp_path: Path) -> None:
    before, after = around_the_wait(subject(LAYERS[0], 0), tmp_path)
    assert before.count("LDG.E.NA.128") == 1280 // (32 * 8)
    assert "LDG.E.NA.128" not in after
