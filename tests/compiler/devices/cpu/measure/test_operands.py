from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cpu.measure.operands import lay_out
from compiler.ir.kernel import Kernel, Routine, Slot
from compiler.ir.tensor import DType, TensorType
from compiler.measure.pattern import greatest_sizes, pattern, reads_indices
from tests.parse import parse_kernel

PLAIN = parse_kernel("kernel k(in x: i64[8], in w: i64[8]; out y: i64[8]) for i:8 y[i] = div(x[i], w[i])")
GATHER = parse_kernel("kernel k(in x: f32[8], in w: i64[4]; out y: f32[4]) for i:4 y[i] = x[[w[i] in 0..7]]")
NESTED = parse_kernel("kernel k(in x: f32[8], in w: i64[4]; out y: f32[4]) for i:4 y[i] = x[([w[i] in 0..15])//2]")
SCATTER = parse_kernel("kernel k(in x: f32[4], in w: i64[4]; out y: f32[4]) for seq i:4 y[[w[i] in 0..3]] = x[i]")


@pytest.mark.parametrize(("kernel", "expected"), [(PLAIN, False), (GATHER, True), (NESTED, True), (SCATTER, True)])
def test_kernels_that_read_indices_are_known(kernel: Kernel, expected: bool) -> None:
    assert reads_indices(kernel) is expected


def test_a_routine_is_taken_to_read_indices() -> None:
    assert reads_indices(Routine("TopK", "top_k", (), ()))


SIZED = parse_kernel(
    "kernel k(in x: f32[3, 8], in n: i64[], in w: i32[3]; out y: f32[3, 8]) for a:3, i:8 "
    "y[a, i] = where(lt(#(i):i64, n[]), where(lt(#(a):i64, cast(w[a]):i64), x[a, i], 0.0:f32), 0.0:f32)"
)


def test_sizes_leave_nothing_out_when_kernels_are_timed() -> None:
    assert greatest_sizes(SIZED) == {"n": 8, "w": 3}
    assert greatest_sizes(PLAIN) == {}
    operands = ((DType.F32, 24), (DType.I64, 1), (DType.I32, 3), (DType.F32, 24))
    memory = lay_out(operands, (False,) * 4, 1, SIZED, 0, 1, 0, 0).memory
    assert memory[1][:8].view(np.int64).tolist() == [8]
    assert memory[2][:12].view(np.int32).tolist() == [3, 3, 3]


def test_the_last_place_that_counts_is_a_size_too() -> None:
    kernel = parse_kernel(
        "kernel k(in x: f32[8], in n: i64[1]; out y: f32[8]) for i:8 y[i] = where(le(#(i):i64, n[0]), x[i], 0.0:f32)"
    )
    assert greatest_sizes(kernel) == {"n": 8}


def test_whole_scalars_of_routines_are_sizes() -> None:
    scalar, vector = TensorType(DType.I64, ()), TensorType(DType.I64, (5,))
    routine = Routine("a", "a", (Slot("x", TensorType(DType.F32, (7, 2))), Slot("n", scalar), Slot("v", vector)), ())
    assert greatest_sizes(routine) == {"n": 7}


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.BOOL])
def test_data_is_never_zero_and_small_unless_it_may_be_an_index(dtype: DType) -> None:
    drawn = pattern(dtype, np.random.default_rng(0), zero=False).astype(np.float64)
    assert drawn.min() > 0
    assert drawn.max() < 8
    assert pattern(dtype, np.random.default_rng(0), zero=True).any() == dtype.is_float


def test_weights_exist_so_often_that_no_cache_of_that_size_holds_them() -> None:
    operands = ((DType.I64, 8), (DType.I64, 8), (DType.I64, 8))
    cold = lay_out(operands, (False, True, False), 1, PLAIN, 0, 1, 1000, 0)
    assert cold.tables.shape == (16, 3)
    assert np.array_equal(np.diff(cold.tables[:, 1]), np.full(15, 64))
    assert len(np.unique(cold.tables[:, 0])) == len(np.unique(cold.tables[:, 2])) == 1
    assert (cold.memory[1].view(np.int64) > 0).all()
    assert np.array_equal(cold.memory[1][:64], cold.memory[1][-64:])
    assert [region.bytes for region in cold.warm] == [0, 64, 64]
    assert len(lay_out(operands, (False, True, False), 1, PLAIN, 0, 1, 0, 0).tables) == 1
    assert len(lay_out(operands, (False, False, False), 1, PLAIN, 0, 1, 1000, 0).tables) == 1


def test_weights_in_memory_are_driven_out_of_the_caches_and_activations_are_not() -> None:
    operands = ((DType.I64, 8), (DType.I64, 8), (DType.I64, 8))
    laid = lay_out(operands, (False, True, False), 1, PLAIN, 0, 1, 1000, 0, in_memory=True)
    assert [(region.data, region.bytes) for region in laid.cold] == [(laid.memory[1].ctypes.data, 16 * 64)]
    read, _, written = (memory.ctypes.data for memory in laid.memory)
    assert [region.data for region in laid.warm] == [laid.scratch.ctypes.data, written, read]
    assert not len(lay_out(operands, (False, True, False), 1, PLAIN, 0, 1, 1000, 0).cold)


def test_each_lane_has_scratch_of_its_own_pages() -> None:
    laid = lay_out(((DType.F32, 4),), (False,), 1, PLAIN, 5000, 3, 0, 0)
    assert (laid.scratch_stride, len(laid.scratch), laid.scratch.ctypes.data % 4096) == (8192, 3 * 8192, 0)


def test_empty_operands_are_laid_out() -> None:
    laid = lay_out(((DType.F32, 0), (DType.F32, 0)), (True, False), 1, PLAIN, 0, 1, 1000, 0)
    assert laid.tables.shape == (1, 2)
