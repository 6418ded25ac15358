"""What is rounded to bytes is scaled by the constants that it is made with, and clamped by saturation.

A QuantizeLinear divides by its scale, saturates and rounds. Behind a product of bytes, a factor and a bias stand before
it already, and behind a residual addition the scales of both operands: 1/s belongs into these.
"""

from __future__ import annotations

import numpy as np

from compiler.ir import arithmetic
from compiler.ir.graph import Node
from compiler.ir.small import FLOATS
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.clamps import bounds_of
from compiler.rewrite.view import Draft, No, Rewrite, View

DEPTH = 6
"""Nodes between a constant and a QuantizeLinear, at most."""
HOMOGENEOUS = having(Trait.POSITIVE_HOMOGENEOUS) & having(Trait.ELEMENTWISE)
"""f(x / s) = f(x) / s: Relu, LeakyRelu and their like."""
JOINS = ("Mul", "Add", "Concat")
"""They give a quotient where one of their operands is divided, or all are."""
LEAST, GREATEST = 2.0**-100, 2.0**80
"""Of factors: what is within stays far from subnormal numbers and from infinity, with sums of 32 bits too."""


def scaled_ahead(view: View, node: Node) -> Rewrite | No | None:
    """quantise(x, s, z) = quantise(x / s, 1, z), where x is made with constants that 1/s goes into."""
    scale = view.scalar(node.used[1])
    if scale is None or scale == 1 or view.producer(node.used[0], "Clip", *JOINS, *HOMOGENEOUS) is None:
        return None
    if {view.type(value).dtype for value in node.used[:2]} != {DType.F32}:
        return None
    if not scale > 0:
        return No(f"the scale {scale:g} is not above 0")
    division = _Division(view, view.draft(node), scale)
    divided = division.of(node.used[0], DEPTH)
    if divided is None or isinstance(divided, No):
        return divided
    if (refusal := view.enclosed(node, division.swallowed)) is not None:
        return refusal
    one = division.draft.constant(np.ones(view.dims(node.used[1]), np.float32))
    division.draft.node("QuantizeLinear", (divided, one, *node.inputs[2:]), node.attrs)
    return division.draft.done("its scale is divided by ahead of time")


class _Division:
    """x / scale, written into a draft."""

    def __init__(self, view: View, draft: Draft, scale: float) -> None:
        self.view, self.draft, self.scale = view, draft, scale
        self.swallowed: list[Node] = []
        """Nodes that nothing else may need."""

    def of(self, value: int, depth: int) -> int | No | None:
        """A value divided; None where it is not made with constants alone that may be divided."""
        view, draft = self.view, self.draft
        if (array := view.constant(value)) is not None:
            quotient = rounded(wide(array) / self.scale, DType.F32)
            return quotient if isinstance(quotient, No) else draft.constant(quotient)
        node = view.producer(value, "DequantizeLinear", "Clip", *JOINS, *HOMOGENEOUS)
        if node is None or not depth:
            return None
        if node.op == "DequantizeLinear":
            factor = self._factor(node.used[1])
            if factor is None or isinstance(factor, No):
                return factor
            return draft.node(node.op, (node.inputs[0], factor, *node.inputs[2:]), node.attrs, node.source)
        self.swallowed.append(node)
        divided = self._operands(node, depth - 1)
        if divided is None or isinstance(divided, No):
            return divided
        return draft.node(node.op, divided, node.attrs, node.source)

    def _operands(self, node: Node, depth: int) -> tuple[int | None, ...] | No | None:
        """What a node reads so that it gives the quotient: one factor divided, else all operands."""
        if node.op == "Mul":
            for value, _ in self.view.operands(node):
                (constant,) = (other for other in node.used if other != value)
                factor = self._factor(constant)
                return factor if factor is None or isinstance(factor, No) else (value, factor)
            return None
        if node.op in HOMOGENEOUS:
            divided = self.of(node.used[0], depth)
            return divided if divided is None or isinstance(divided, No) else (divided, *node.inputs[1:])
        if node.op == "Clip" and isinstance(bounds := bounds_of(self.view, node), No):
            return bounds
        found: list[int | None] = []
        for operand in node.inputs:
            divided = None if operand is None else self.of(operand, depth)
            if isinstance(divided, No) or (divided is None and operand is not None):
                return divided
            found.append(divided)
        return tuple(found)

    def _factor(self, value: int) -> int | No | None:
        """A constant factor divided; No where it would come near to what fp32 cannot hold."""
        array = self.view.constant(value)
        if array is None or array.dtype != np.float32:
            return None
        quotient = wide(array) / self.scale
        size = np.abs(quotient[quotient != 0])
        if not bool(((size >= LEAST) & (size <= GREATEST)).all()):
            return No(f"a factor divided by {self.scale:g} would be too small or too large")
        return self.draft.constant(quotient.astype(np.float32))


def saturated_anyway(view: View, node: Node) -> Rewrite | No | None:
    """quantise(clamp(x, a, b), s, z) = quantise(x, s, z), if a and b become the least and the greatest number."""
    clamp = view.producer(node.used[0], "Relu", "Clip")
    dtype = view.type(node.outputs[0]).dtype
    if clamp is None or dtype in FLOATS:
        return None
    parameters = [None if value is None else view.constant(value) for value in node.inputs[1:]]
    known = [array for array, value in zip(parameters, node.inputs[1:], strict=True) if value is not None]
    if any(array is None or array.size != 1 for array in known):
        return No("scale or zero point is not one constant")
    if not view.scalar(node.used[1]) > 0:  # type: ignore[operator]
        return No("the scale is not above 0")
    bounds = bounds_of(view, clamp)
    if isinstance(bounds, No):
        return bounds
    for bound, end in zip(bounds, arithmetic.bounds(dtype), strict=True):
        if bound is not None:
            (held,) = OPERATORS[node.op].reference(node, (bound, *parameters))
            if held != end:
                return No(f"{bound} becomes {held}, where {dtype} ends at {end}")
    draft = view.draft(node)
    draft.node(node.op, (clamp.used[0], *node.inputs[1:]), node.attrs)
    return draft.done(f"{clamp.op} ends where the bytes do")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("QuantizeLinear",), saturated_anyway),
    Rule(REASSOCIATES, ("QuantizeLinear",), scaled_ahead),
)
