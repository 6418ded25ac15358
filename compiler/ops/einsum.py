"""Einsum: sums of products over named axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import Dim, Shape, TensorType, extent
from compiler.ops.arrays import as_array
from compiler.ops.build import call, cast
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of, at_least_f32, input_slots, output_slots
from compiler.ops.traits import Trait


@dataclass(frozen=True)
class _Equation:
    """Axis labels of each operand and of the result; a label of the ellipsis is its distance from the ellipsis' end."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    extents: dict[str, Dim]


def _labels(term: str, rank: int | None, ellipsis: int) -> tuple[str, ...]:
    """`ab...c` as labels; `rank` is that of an operand, None for the result, which takes all `ellipsis` axes."""
    head, dots, tail = term.partition("...")
    if not all(letter.isalpha() and letter.isascii() for letter in head + tail):
        raise Unsupported(f"the equation has the term {term!r:.80}", "use letters and one ellipsis in each term")
    width = (ellipsis if rank is None else rank - len(head) - len(tail)) if dots else 0
    if (rank is not None and len(head) + len(tail) + width != rank) or width < 0:
        raise Unsupported(f"the term {term!r:.80} does not fit an operand of rank {rank}", "correct the equation")
    return (*head, *(str(place) for place in reversed(range(width))), *tail)


def _equation(node: Node, shapes: tuple[Shape, ...]) -> _Equation:
    """The equation applied to operands of these shapes. Raises Unsupported when it does not fit them."""
    text = str(node.attrs.get("equation", "")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise Unsupported(f"the equation {text!r:.80} has {len(terms)} operands, {len(shapes)} are given", "correct it")
    operands = tuple(_labels(term, len(shape), 0) for term, shape in zip(terms, shapes, strict=True))
    extents: dict[str, Dim] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            known = extents.setdefault(label, dim)
            if known != dim and 1 not in (known, dim):
                raise Unsupported(f"axis {label!r} of {text!r:.80} is both {known} and {dim}", "bind equal dimensions")
            extents[label] = dim if known == 1 else known
    ellipsis = sum(label.isdigit() for label in extents)
    if arrow:
        result = _labels(right, None, ellipsis)
    else:
        letters = [label for labels in operands for label in labels if not label.isdigit()]
        once = sorted(label for label in set(letters) if letters.count(label) == 1)
        result = (*(str(place) for place in reversed(range(ellipsis))), *once)
    if not set(result) <= set(extents) or len(set(result)) != len(result):
        raise Unsupported(f"the result of {text!r:.80} repeats or invents an axis", "correct the equation")
    return _Equation(operands, result, extents)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    there = [type for type in types if type is not None]
    equation = _equation(node, tuple(type.shape for type in there))
    return (TensorType(there[0].dtype, tuple(equation.extents[label] for label in equation.result)),)


def _define(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    there = [type for type in types if type is not None]
    equation = _equation(node, tuple(type.dims for type in there))
    axes = {
        label: Axis(f"e{label}" if label.isdigit() else label, extent(dim)) for label, dim in equation.extents.items()
    }
    dtype = outputs[0].dtype
    reduction = tuple(axis for label, axis in axes.items() if label not in equation.result)
    wide = accumulator_of(dtype)
    factors: list[Expr] = []
    for place, (labels, type) in enumerate(zip(equation.operands, there, strict=True)):
        index = tuple(
            Index.of(axes[label] if extent > 1 else 0) for label, extent in zip(labels, type.dims, strict=True)
        )
        factors.append(cast(Load(f"x{place}", index, dtype), wide))
    value = reduce(lambda left, right: call("mul", left, right), factors)
    shared = tuple(axes[label] for label in equation.result)
    store = Store("y0", tuple(map(Index.of, shared)))
    if reduction:
        block = Block((), (value,), (store,), reduction, "sum", wide)
    else:
        block = Block((), (cast(value, dtype),), (store,))
    return Kernel("Einsum", input_slots(types), output_slots(outputs), (block,), shared=shared)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    there = [at_least_f32(array) for array in arrays if array is not None]
    text = str(node.attrs["equation"]).replace(" ", "")
    return (as_array(np.einsum(text, *there, optimize=True)),)


OPERATORS: tuple[Operator, ...] = (Operator("Einsum", _infer, _reference, _define, traits=Trait.CONTRACTION),)
