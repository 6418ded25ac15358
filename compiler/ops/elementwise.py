"""Elementwise operators with broadcasting.

Arithmetic, comparison, logic, bits, selection, and functions of one argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.ir.expr import Expr, Where
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Shape, TensorType, broadcast
from compiler.ops.arrays import as_array
from compiler.ops.attributes import word_of
from compiler.ops.build import call, cast, chain, map_kernel, number
from compiler.ops.error_function import erf
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import PLAIN, Trait


def broadcast_shape(types: Types) -> Shape:
    """The shape numpy's rules give several tensors. Raises Unsupported when they do not broadcast."""
    shapes = [type.shape for type in types if type is not None]
    found = broadcast(*shapes)
    if found is None:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise Unsupported(f"shapes {listed} do not broadcast", "bind input dimensions that fit each other")
    return found


def same_type(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The result has the element type of the first input and the broadcast shape of all."""
    first = next(type for type in types if type is not None)
    return (TensorType(first.dtype, broadcast_shape(types)),)


def truth_type(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The result is boolean, of the broadcast shape."""
    return (TensorType(DType.BOOL, broadcast_shape(types)),)


def elementwise(
    name: str,
    fn: Callable[..., Expr],
    reference: Callable[..., Any],
    infer: Callable[..., Any] = same_type,
    *,
    traits: Trait = PLAIN,
) -> Operator:
    """A record whose definition applies `fn` to broadcast elements and whose reference applies `reference` to arrays.

    `traits` are those beside ELEMENTWISE.
    """

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        return map_kernel(name, types, outs[0], fn)

    def evaluate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            return (as_array(reference(*(array for array in arrays if array is not None))),)

    return Operator(name, infer, evaluate, define, traits=traits | Trait.ELEMENTWISE)


def unary(
    name: str,
    fn: Callable[..., Expr],
    reference: Callable[..., Any],
    infer: Callable[..., Any] = same_type,
    *,
    traits: Trait = PLAIN,
) -> Operator:
    """`elementwise` of one tensor."""
    return elementwise(name, fn, reference, infer, traits=Trait.UNARY | traits)


def _function(function: str) -> Callable[..., Expr]:
    return lambda *args: call(function, *args)


def _chained(function: str) -> Callable[..., Expr]:
    return lambda *args: chain(function, args)


def _mean(*args: Expr) -> Expr:
    return call("div", chain("add", args), number(len(args), args[0].dtype))


def _pow(base: Expr, exponent: Expr) -> Expr:
    """Powers are computed in the base's type; an integer to a real power in double."""
    if base.dtype.is_integer and exponent.dtype.is_float:
        return cast(call("pow", cast(base, DType.F64), cast(exponent, DType.F64)), base.dtype)
    return call("pow", base, cast(exponent, base.dtype))


def _reference_pow(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """An integer to a negative power truncates the real result: only 1 and -1 leave anything."""
    if base.dtype.kind in "iu" and exponent.dtype.kind in "iu":
        inverse = np.where(np.abs(base) == 1, np.power(base, np.abs(exponent) % 2), 0)
        return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0))).astype(base.dtype)
    return as_array(np.power(base, exponent)).astype(base.dtype)


def _reference_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers truncate towards zero, and give 0 where they are divided by it."""
    if a.dtype.kind not in "iu":
        return as_array(a / b)
    divisor = np.where(b == 0, np.ones_like(b), b)
    below = (a % divisor != 0) & ((a < 0) != (b < 0))
    return np.where(b == 0, 0, a // divisor + below).astype(a.dtype)


def _mod_record() -> Operator:
    def function(node: Node) -> str:
        return "fmod" if node.attrs.get("fmod", 0) else "mod"

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        return map_kernel("Mod", types, outs[0], _function(function(node)))

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        a, b = arrays_at(arrays, 0, 1)
        with np.errstate(all="ignore"):
            return (np.fmod(a, b) if function(node) == "fmod" else np.mod(a, b),)

    return Operator("Mod", same_type, reference, define, traits=Trait.ELEMENTWISE)


def _shift_record() -> Operator:
    def goes_left(node: Node) -> bool:
        return word_of(node, "direction", "LEFT", "RIGHT") == "LEFT"

    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        goes_left(node)
        return same_type(node, types)

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        """By an amount below 0, or of as many bits as there are or more, only the sign of a right shift is left."""
        left, dtype = goes_left(node), outs[0].dtype
        bits = 8 * dtype.bytes

        def fn(x: Expr, amount: Expr) -> Expr:
            beyond = call("ge", amount, number(bits, dtype))
            if dtype.is_signed:
                beyond = call("or", beyond, call("lt", amount, number(0, dtype)))
            shifted = call("shift_left" if left else "shift_right", x, amount)
            keeps_sign = dtype.is_signed and not left
            rest = call("shift_right", x, number(bits - 1, dtype)) if keeps_sign else number(0, dtype)
            return Where(beyond, rest, shifted)

        return map_kernel("BitShift", types, outs[0], fn)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        """In Python's integers, cut to the bits of the element type."""
        a, b = np.broadcast_arrays(*arrays_at(arrays, 0, 1))
        bits = 8 * a.dtype.itemsize
        beyond = (b < 0) | (b >= bits)
        if goes_left(node):
            wide = np.where(beyond, 0, a).astype(object) << np.where(beyond, 0, b).astype(object)
            cut = np.frompyfunc(lambda item: item & (2**bits - 1), 1, 1)(wide)
            return (cut.astype(f"u{a.dtype.itemsize}").view(a.dtype).reshape(a.shape),)
        kept = np.right_shift(a, np.where(beyond, 0, b).astype(a.dtype))
        return (np.where(beyond, np.where(a < 0, -1, 0).astype(a.dtype), kept),)

    return Operator("BitShift", infer, reference, define, traits=Trait.ELEMENTWISE)


def _isinf_record() -> Operator:
    def signs(node: Node) -> tuple[bool, bool]:
        return bool(node.attrs.get("detect_negative", 1)), bool(node.attrs.get("detect_positive", 1))

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        negative, positive = signs(node)

        def fn(x: Expr) -> Expr:
            parts = [call("lt", x, number(0, x.dtype))] * negative + [call("gt", x, number(0, x.dtype))] * positive
            which = chain("or", parts) if parts else number(0, DType.BOOL)
            return call("and", call("isinf", x), which)

        return map_kernel("IsInf", types, outs[0], fn)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        negative, positive = signs(node)
        return ((np.isneginf(x) & negative) | (np.isposinf(x) & positive),)

    return Operator("IsInf", truth_type, reference, define, traits=Trait.ELEMENTWISE | Trait.UNARY | Trait.LOGICAL)


def _where_type(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(given(types, 1).dtype, broadcast_shape(types)),)


UNARY = (
    unary("Identity", lambda x: x, lambda x: x, traits=Trait.MOVES | Trait.VIEW),
    unary("Neg", _function("neg"), np.negative),
    unary("Abs", _function("abs"), np.abs, traits=Trait.POSITIVE_HOMOGENEOUS | Trait.NOT_NEGATIVE),
    unary("Sign", _function("sign"), np.sign),
    unary("Exp", _function("exp"), np.exp, traits=Trait.NOT_NEGATIVE),
    unary("Log", _function("log"), np.log),
    unary("Sqrt", _function("sqrt"), np.sqrt, traits=Trait.NOT_NEGATIVE),
    unary("Reciprocal", _function("reciprocal"), lambda x: 1 / x),
    unary("Floor", _function("floor"), np.floor),
    unary("Ceil", _function("ceil"), np.ceil),
    unary("Round", _function("round"), np.rint),
    unary("Sin", _function("sin"), np.sin),
    unary("Cos", _function("cos"), np.cos),
    unary("Tan", _function("tan"), np.tan),
    unary("Asin", _function("asin"), np.arcsin),
    unary("Acos", _function("acos"), np.arccos, traits=Trait.NOT_NEGATIVE),
    unary("Atan", _function("atan"), np.arctan),
    unary("Sinh", _function("sinh"), np.sinh),
    unary("Cosh", _function("cosh"), np.cosh, traits=Trait.NOT_NEGATIVE),
    unary("Tanh", _function("tanh"), np.tanh),
    unary("Asinh", _function("asinh"), np.arcsinh),
    unary("Acosh", _function("acosh"), np.arccosh, traits=Trait.NOT_NEGATIVE),
    unary("Atanh", _function("atanh"), np.arctanh),
    unary("Erf", _function("erf"), erf),
    unary("Not", _function("not"), np.logical_not, traits=Trait.LOGICAL),
    unary("BitwiseNot", _function("bit_not"), np.bitwise_not),
    unary("IsNaN", _function("isnan"), np.isnan, truth_type, traits=Trait.LOGICAL),
)

BINARY = (
    elementwise("Add", _function("add"), np.add, traits=Trait.COMMUTATIVE),
    elementwise("Sub", _function("sub"), np.subtract),
    elementwise("Mul", _function("mul"), np.multiply, traits=Trait.COMMUTATIVE),
    elementwise("Div", _function("div"), _reference_div),
    elementwise("Pow", _pow, _reference_pow),
    elementwise("And", _function("and"), np.logical_and, truth_type, traits=Trait.COMMUTATIVE | Trait.LOGICAL),
    elementwise("Or", _function("or"), np.logical_or, truth_type, traits=Trait.COMMUTATIVE | Trait.LOGICAL),
    elementwise("Xor", _function("xor"), np.logical_xor, truth_type, traits=Trait.COMMUTATIVE | Trait.LOGICAL),
    elementwise("Equal", _function("eq"), np.equal, truth_type, traits=Trait.COMMUTATIVE | Trait.LOGICAL),
    elementwise("Greater", _function("gt"), np.greater, truth_type, traits=Trait.LOGICAL),
    elementwise("GreaterOrEqual", _function("ge"), np.greater_equal, truth_type, traits=Trait.LOGICAL),
    elementwise("Less", _function("lt"), np.less, truth_type, traits=Trait.LOGICAL),
    elementwise("LessOrEqual", _function("le"), np.less_equal, truth_type, traits=Trait.LOGICAL),
    elementwise("BitwiseAnd", _function("bit_and"), np.bitwise_and, traits=Trait.COMMUTATIVE),
    elementwise("BitwiseOr", _function("bit_or"), np.bitwise_or, traits=Trait.COMMUTATIVE),
    elementwise("BitwiseXor", _function("bit_xor"), np.bitwise_xor, traits=Trait.COMMUTATIVE),
)


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: functools.reduce(function, arrays)


NARY = (
    elementwise("Sum", _chained("add"), _folded(np.add)),
    elementwise("Min", _chained("min"), _folded(np.minimum)),
    elementwise("Max", _chained("max"), _folded(np.maximum)),
    elementwise("Mean", _mean, lambda *arrays: _folded(np.add)(*arrays) / len(arrays)),
    elementwise("Where", lambda c, a, b: Where(c, a, b), np.where, _where_type, traits=Trait.LOGICAL),
)

OPERATORS: tuple[Operator, ...] = (*UNARY, *BINARY, *NARY, _mod_record(), _shift_record(), _isinf_record())
