from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.accesses import Access, Accesses, whole, written_over
from compiler.ir.plans.touched import Segment, Touched
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from tests.parse import parse_routine

LOOPS = Tile("loops")
SUM = parse_routine("routine sum sum(in x: f32[6, 2], in w: f32[6, 2]; out y: f32[6, 2])")
PAIR = TensorType(DType.F32, (6, 2))


def graph(pairs: tuple[tuple[int, int], ...] = ()) -> KernelGraph:
    """Two sums with a constant: the first into the right half of b3, the second of the whole of its own."""
    buffers = {id: Buffer.whole(id, PAIR) for id in (0, 1, 4)}
    buffers[3] = Buffer.whole(3, TensorType(DType.F32, (6, 4)))
    buffers[2] = Buffer(2, PAIR, Layout.plain(2), 3, (4, 1), 2)
    calls = (Call(SUM, (0, 1), (2,)), Call(SUM, (2, 1), (4,), pairs))
    return KernelGraph(buffers, calls, (0,), (4,), {1: np.ones((6, 2), np.float32)})


class Rows:
    """One tile task for each row of buffers side by side."""

    def touched(self, call: int, tile: Tile, first: int, last: int) -> Touched:
        part, none = Segment(16 * first + 8, 16 * last), Segment(0, 0)
        return Touched((none if call == 0 else part, none), (part,))


def test_a_slice_reaches_from_its_first_element_past_its_last() -> None:
    buffers = graph().buffers
    assert whole(buffers[2]) == Segment(8, 96)
    assert whole(buffers[3]) == Segment(0, 96)
    empty = Buffer.whole(9, TensorType(DType.F32, (0, 4)))
    assert whole(empty) == Segment(0, 0)


def test_without_regions_operands_are_touched_whole_and_inputs_and_constants_are_left_out() -> None:
    accesses = Accesses(graph())
    assert accesses.of(0, LOOPS, 0, 3) == accesses.of(0, LOOPS, 3, 6) == (Access(2, 3, 8, 96, True),)
    assert accesses.of(1, LOOPS, 0, 6) == (Access(2, 3, 8, 96, False), Access(4, 4, 0, 48, True))


def test_regions_tell_what_is_touched() -> None:
    accesses = Accesses(graph(), Rows())
    assert accesses.of(0, LOOPS, 1, 3) == (Access(2, 3, 24, 48, True),)
    assert accesses.of(1, LOOPS, 2, 3) == (Access(2, 3, 40, 48, False), Access(4, 4, 40, 48, True))


def between_slices(at: int) -> KernelGraph:
    """The second sum reads the right half of b3 where it writes.

    It writes, in another storage, the half that begins at column `at`.
    """
    kernels = graph(((0, 0),))
    whole_of_it = Buffer.whole(5, TensorType(DType.F32, (6, 4)))
    half = Buffer(4, PAIR, Layout.plain(2), 5, (4, 1), at)
    return replace(kernels, buffers={**kernels.buffers, 4: half, 5: whole_of_it})


def test_a_call_may_write_over_what_all_operands_there_read_at_one_point() -> None:
    assert written_over(graph(), 1) == ()
    kernels = between_slices(2)
    assert written_over(kernels, 1) == ((5, 3),)
    beside = Call(SUM, (2, 3), (4,), ((0, 0),))
    twice = KernelGraph(kernels.buffers, (kernels.calls[0], beside), (0,), (4,))
    assert written_over(twice, 1) == ()


def test_a_call_may_not_write_over_what_it_reads_at_another_place_of_the_storage() -> None:
    assert written_over(between_slices(0), 1) == ()
