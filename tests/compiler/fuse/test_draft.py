"""Ops in execution order: what is known of them as they come and go is what a walk over all of them finds."""

from __future__ import annotations

import random

import pytest

from compiler.fuse.draft import Op, Ops
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS

SCALAR = TensorType(DType.F32, ())
RELU = OPERATORS["Relu"].define(Node("Relu", (0,), (1,), {}), (SCALAR,), (SCALAR,))


def op_of(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Op:
    assert isinstance(RELU, Kernel)
    return Op(RELU, inputs, outputs, ())


@pytest.mark.parametrize("seed", range(5))
def test_makers_readers_and_places_stay_those_of_the_list_as_ops_are_replaced_and_removed(seed: int) -> None:
    chance = random.Random(seed)
    listed = [op_of(tuple(chance.randrange(at + 5) for _ in range(3)), (at + 5,)) for at in range(40)]
    ops = Ops(listed)
    while len(listed) > 1:
        first, last = sorted(chance.sample(range(len(listed)), 2))
        pair, place = [listed[first], listed[last]], chance.choice((first, last))
        if chance.random() < 0.3:
            ops.remove(pair[0])
            listed = [op for op in listed if op is not pair[0]]
        else:
            both = op_of(pair[0].inputs + pair[1].inputs, pair[0].outputs + pair[1].outputs)
            ops.replace(pair, both, listed[place])
            listed = [both if at == place else op for at, op in enumerate(listed) if at == place or op not in pair]
        read = {value for op in listed for value in op.inputs}
        made = {value: op for op in listed for value in op.outputs}
        assert all(one is other for one, other in zip(ops, listed, strict=True))
        assert all(ops.maker(value) is made.get(value) for value in range(45))
        assert all(ops.readers(value) == [op for op in listed if value in op.inputs] for value in range(45))
        assert ops.unread == made.keys() - read
        one, other, *_ = [*listed, *listed]
        assert [op in ops for op in (one, *pair)] == [True, *(any(op is left for left in listed) for op in pair)]
        assert [ops.is_between(op, one, listed[-1]) for op in listed[1:-1]] == [True] * len(listed[1:-1])
        assert not ops.is_between(other, other, one)
