from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import this_machine
from compiler.errors import InternalError
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import Case, Library, array_of, loaded
from tests.compiler.ops.single import prepare

TOP = OPERATORS["TopK"]


def top_k(x: np.ndarray, k: int, axis: int, largest: int, outputs: int) -> tuple[Node, Case]:
    node, _, types = prepare(TOP, [x, np.array([k])], {"axis": axis, "largest": largest}, outputs)
    routine = TOP.define(node, types, TOP.infer(node, types))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*routine.inputs, *routine.outputs)))
    return node, Case(cast(Kernel, routine), buffers, (x,), Tile("routine"))


def with_surprises(dtype: DType, random: np.random.Generator) -> np.ndarray:
    """Small integers, so that many are equal, with NaN, infinities and both zeros among the floats."""
    x = np.round(3 * array_of(TensorType(dtype, (3, 7, 5)), random)).astype(dtype.numpy)
    if dtype.is_float:
        for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, np.nan):
            x.flat[int(random.integers(x.size))] = value
    return x


def subjects() -> Iterator[tuple[Node, Case]]:
    random = np.random.default_rng(3)
    for dtype in (one for one in DType if not one.is_small):
        for axis, k, largest, outputs in ((1, 4, 1, 2), (2, 5, 0, 2), (0, 2, 0, 1), (1, 7, 1, 1), (1, 0, 1, 2)):
            yield top_k(with_surprises(dtype, random), k, axis, largest, outputs)


def test_TopK_in_c_is_its_reference_with_nan_ties_and_either_number_of_outputs() -> None:
    cases = list(subjects())
    lowered = [lower(f"k{at}_topk", case.workload, case.tile, this_machine()) for at, (_, case) in enumerate(cases)]
    built = build_library(kernel_sources(lowered), this_machine(), find_toolchain(), optimise="-O1")
    library = Library(lowered, loaded(built))
    for number, (node, case) in enumerate(cases):
        expected = TOP.reference(node, case.inputs)
        for got, want in zip(library.run(number, case), expected, strict=True):
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=str(case))


def test_a_routine_refuses_a_buffer_that_is_not_plain() -> None:
    _, case = top_k(np.zeros((2, 3, 4), np.float32), 2, 1, 1, 2)
    turned = Buffer.whole(0, case.buffers[0].type, Layout.channels_last(3))
    case = replace(case, buffers=(turned, *case.buffers[1:]))
    with pytest.raises(InternalError, match="plain buffers"):
        lower("k0_topk", case.workload, case.tile, this_machine())


def test_a_routine_without_a_c_form_is_refused() -> None:
    _, case = top_k(np.zeros((2, 3), np.float32), 2, 1, 1, 2)
    unknown = replace(cast(Routine, case.kernel), name="unique")
    with pytest.raises(InternalError, match="no C form"):
        lower("k0_unique", replace(case, kernel=cast(Kernel, unknown)).workload, case.tile, this_machine())
