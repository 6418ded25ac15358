from __future__ import annotations

import itertools
import math
import random
import re

import numpy as np
import pytest

from compiler.errors import InternalError, VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import Dim, DType, Symbol, TensorType, at_most, broadcast, extent, static

ROWS, COLUMNS = Symbol("rows", 1, 4), Symbol("columns", 0, 3)


def types(seed: int) -> TensorType:
    """A type of up to four dimensions, some of them symbols."""
    pick = random.Random(seed)
    shape = tuple(pick.choice((0, 1, 2, 5, ROWS, COLUMNS)) for _ in range(pick.randrange(5)))
    return TensorType(pick.choice(tuple(DType)), shape)


def test_what_needs_numbers_refuses_every_type_with_a_symbol_and_names_it() -> None:
    refused = 0
    for type in map(types, range(200)):
        capacity = tuple(dim if isinstance(dim, int) else dim.high for dim in type.shape)
        assert type.capacity == capacity
        assert all(dim >= 0 for dim in type.capacity)
        if type.is_static:
            assert type.dims == type.capacity == type.shape
            assert type.elements == math.prod(static(type.shape))
            assert type.bytes == type.elements * type.dtype.bytes
            continue
        refused += 1
        first = next(dim for dim in type.shape if isinstance(dim, Symbol))
        for asked in ("dims", "elements", "bytes"):
            with pytest.raises(InternalError, match=re.escape(f"is the symbol {first}, where a number is needed")):
                getattr(type, asked)
        assert str(first) in str(type)
    assert refused > 90


def test_a_part_of_a_shape_is_static_where_it_has_no_symbol() -> None:
    assert static((ROWS, 3, 4)[1:]) == (3, 4)
    assert extent(3) == 3
    with pytest.raises(VerifyError, match=re.escape("axis 1 of [3, rows:1..4] is the symbol rows:1..4")):
        static((3, ROWS))


DIMS: tuple[Dim, ...] = (0, 1, 2, 3, 4, 5, ROWS, COLUMNS)


def values(dims: tuple[Dim, ...]) -> list[dict[Dim, int]]:
    """Every choice of numbers for the symbols among some dimensions."""
    symbols = list(dict.fromkeys(dim for dim in dims if isinstance(dim, Symbol)))
    ranges = (range(symbol.low, symbol.high + 1) for symbol in symbols)
    return [dict(zip(symbols, chosen, strict=True)) for chosen in itertools.product(*ranges)]


def test_shapes_broadcast_as_they_do_for_every_value_of_their_symbols() -> None:
    fitting = 0
    for one, other in itertools.product(DIMS, DIMS):
        found = broadcast((one,), (other, 2))
        assert found == broadcast((other, 2), (one,))
        for chosen in values((one, other)):
            shapes = ((chosen.get(one, one),), (chosen.get(other, other), 2))
            try:
                expected = np.broadcast_shapes(*(static(shape) for shape in shapes))
            except ValueError:
                assert found is None
                continue
            if found is not None:
                fitting += 1
                assert tuple(chosen.get(dim, dim) for dim in found) == expected
        if isinstance(one, int) and isinstance(other, int):
            assert (found is None) == (one not in (1, 2))
    assert fitting > 10
    assert broadcast((3, ROWS), (ROWS,)) == (3, ROWS)
    assert broadcast((3, ROWS), (1,)) == (3, ROWS)
    assert broadcast((3, ROWS), (COLUMNS,)) is None
    assert broadcast() == ()


def test_a_dimension_is_at_most_another_only_where_it_is_for_every_value() -> None:
    for one, other in itertools.product(DIMS, DIMS):
        every = all(chosen.get(one, one) <= chosen.get(other, other) for chosen in values((one, other)))  # type: ignore[operator]
        assert at_most(one, other) == every, (one, other)


def kernel_of(shape: tuple[Dim, ...], temp: bool = False) -> Kernel:
    """y = x, one element at a time, over four rows."""
    axis = Axis("i", 4)
    at = (Index.of(axis),)
    symbolic, plain = TensorType(DType.F32, shape), TensorType(DType.F32, (4,))
    block = Block((axis,), (Load("x", at, DType.F32),), (Store("y", at),))
    outer = plain if temp else symbolic
    temps = (Slot("t", symbolic),) if temp else ()
    return Kernel("copy", (Slot("x", outer),), (Slot("y", outer),), (block,), temps)


@pytest.mark.parametrize("temp", [False, True])
def test_a_kernel_of_a_symbolic_type_is_refused(temp: bool) -> None:
    kernel_of((4,), temp).verify()
    slot = "t" if temp else "x"
    with pytest.raises(
        VerifyError, match=re.escape(f"has the slot `{slot}: f32[rows:1..4]` with the symbol rows:1..4")
    ):
        kernel_of((ROWS,), temp).verify()


def test_a_routine_of_a_symbolic_type_is_refused() -> None:
    slots = (Slot("x", TensorType(DType.F32, (2, ROWS))),), (Slot("y", TensorType(DType.F32, (2, 1))),)
    with pytest.raises(VerifyError, match=r"routine topk has the slot `x: .*` with the symbol rows:1\.\.4"):
        Routine("TopK", "topk", *slots).verify()


def test_no_buffer_is_laid_out_for_a_symbolic_type_and_what_holds_a_symbolic_kernel_is_refused() -> None:
    symbolic = kernel_of((ROWS,))
    with pytest.raises(VerifyError, match=r"is the symbol rows:1\.\.4, where a number is needed"):
        Buffer.whole(0, symbolic.inputs[0].type)
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (4,))) for id in (0, 1)}
    with pytest.raises(VerifyError, match=r"with the symbol rows:1\.\.4"):
        KernelGraph(buffers, (Call(symbolic, (0,), (1,)),), (0,), (1,)).verify()
    with pytest.raises(VerifyError, match=r"with the symbol rows:1\.\.4"):
        Workload(symbolic, (buffers[0],), (buffers[1],), (False,)).verify()
