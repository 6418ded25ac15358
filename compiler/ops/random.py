"""RandomBits, the compiler's own: what all random operators draw from, by a generator without memory.

Element i of a result is the first word of Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3,
2011) for the counter (i, i >> 32, stream, run) and the key (key, key >> 32), each in words of 32 bits. So every element
is computed by itself, on every device the same.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Position
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import ints
from compiler.ops.build import call, cast, view_kernel
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
"""By which the two words of the key grow from round to round."""
MASK = 0xFFFFFFFF


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    state = given(types, 0)
    if state != TensorType(DType.I64, (2,)):
        raise Unsupported(f"its state is {state}", "give a key and the number of the run, i64")
    return (TensorType(DType.U32, ints(node, "shape") or ()),)


def _stream(node: Node) -> int:
    stream = node.attrs.get("stream", 0)
    assert isinstance(stream, int)
    return stream & MASK


def _own_key(node: Node) -> int | None:
    """The key that the node states; None: it is that of the state."""
    key = node.attrs.get("key")
    assert key is None or isinstance(key, int)
    return key


def _word(number: int) -> Expr:
    return Const(number & MASK, DType.U32)


def _halves(expr: Expr) -> tuple[Expr, Expr]:
    """The lower and the upper 32 bits of 64."""
    upper = call("shift_right", expr, Const(32, expr.dtype))
    return cast(expr, DType.U32), cast(upper, DType.U32)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    stream, own = _stream(node), _own_key(node)

    def element(axes: tuple[Axis, ...]) -> Expr:
        place = Index.of(0)
        for axis in axes:
            place = place * axis.extent + Index.of(axis)
        if own is None:
            keys = _halves(Load("x0", (Index.of(0),), DType.I64))
        else:
            keys = (_word(own), _word(own >> 32))
        run = cast(Load("x0", (Index.of(1),), DType.I64), DType.U32)
        a, b = _halves(Position(place))
        return _first_word((a, b, _word(stream), run), keys)

    return view_kernel("RandomBits", types, outs[0], element)


def _first_word(counter: tuple[Expr, Expr, Expr, Expr], keys: tuple[Expr, Expr]) -> Expr:
    """Of Philox4x32-10."""
    a, b, c, d = counter
    for turn in range(ROUNDS):
        one, two = (call("add", key, _word(turn * step)) for key, step in zip(keys, STEPS, strict=True))
        low_a, high_a = _product(a, MULTIPLIERS[0])
        low_c, high_c = _product(c, MULTIPLIERS[1])
        a, b = call("bit_xor", call("bit_xor", high_c, b), one), low_c
        c, d = call("bit_xor", call("bit_xor", high_a, d), two), low_a
    return a


def _product(word: Expr, factor: int) -> tuple[Expr, Expr]:
    return _halves(call("mul", cast(word, DType.U64), Const(factor, DType.U64)))


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """In Python's own integers' arithmetic on arrays of 64 bits, round by round."""
    (state,) = arrays_at(arrays, 0)
    shape = ints(node, "shape") or ()
    own = _own_key(node)
    key = int(state[0]) if own is None else own
    place = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    word, low = np.uint64(32), np.uint64(MASK)
    counter = [
        place & low,
        place >> word,
        np.full_like(place, _stream(node)),
        np.full_like(place, int(state[1]) & MASK),
    ]
    for turn in range(ROUNDS):
        keys = [np.uint64(((key >> shift) + turn * step) & MASK) for shift, step in zip((0, 32), STEPS, strict=True)]
        products = [counter[at] * np.uint64(factor) for at, factor in zip((0, 2), MULTIPLIERS, strict=True)]
        counter = [
            (products[1] >> word) ^ counter[1] ^ keys[0],
            products[1] & low,
            (products[0] >> word) ^ counter[3] ^ keys[1],
            products[0] & low,
        ]
    return (counter[0].astype(np.uint32).reshape(shape),)


OPERATORS: tuple[Operator, ...] = (Operator("RandomBits", _infer, _reference, _define, opsets=NOT_IN_ONNX),)
"""`RandomBits(state)` with attributes `shape`, `stream` and, where the node has a seed of its own, `key`: u32."""
