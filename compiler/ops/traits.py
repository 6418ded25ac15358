"""What an operator is, beyond its types and its values: promises that stages look up instead of listing names.

A trait is a fact about the operator in its newest form, whatever device runs it. What one rule can do with an operator
is no trait. Each is there because something outside `ops` asks for it, and is held against the references by
`tests/compiler/ops/test_traits.py`.
"""

from __future__ import annotations

from enum import Flag, auto


class Trait(Flag):
    """One bit for each promise; an operator has any number of them, and none where nothing is declared.

    Wherever "the first input" is said, further inputs are taken as given: weights, bounds, scales, indices.
    """

    ELEMENTWISE = auto()
    """Each element of the only result is a function of the operands' elements at its place, and the operands are
    broadcast to the result's shape by numpy's rules. The function is the same everywhere."""
    UNARY = auto()
    """ELEMENTWISE, with one tensor: further inputs hold one element each."""
    COMMUTATIVE = auto()
    """Two operands may change places, and the result is the same bit by bit, but for which NaN a NaN is."""
    LOGICAL = auto()
    """ELEMENTWISE, and an operand or the result is boolean by the operator's schema: comparisons, logic, a choice by
    a mask."""
    POSITIVE_HOMOGENEOUS = auto()
    """f(s x) = s f(x) in exact arithmetic for every number s > 0, though not for every s < 0, where x is the first
    input."""
    NOT_NEGATIVE = auto()
    """No element of a floating-point result is below zero; it may be NaN."""

    MOVES = auto()
    """Each element of the results is an element of the first input (of a Concat: of one of its inputs), unchanged.
    Where it comes from is told by types, attributes and the other inputs, never by the elements that move. So a map
    may be done before or after it."""
    VIEW = auto()
    """MOVES, and for inputs without gaps each result is its input's memory read with other strides or from another
    place on, or (of a Concat) each input is that of the result: where storage allows no kernel needs to run."""
    RESHAPE = auto()
    """VIEW, with all elements of the first input in their row-major order, in a shape that may have another rank."""

    CONTRACTION = auto()
    """Each element of the result is a sum of products of elements of two inputs or more: a matrix product, a
    convolution, an einsum. Without WINDOW its work is at most the product of its inputs' sizes."""
    LINEAR = auto()
    """CONTRACTION that is W x in exact arithmetic, or W x + b: x is input 0, W input 1, and b, where there is one,
    input 2."""
    WINDOW = auto()
    """Each element of the first input meets every position of a window, whose extents attributes or weights say: the
    work is the result (or the input) times the window, whatever sizes the inputs have."""
    POOL = auto()
    """Each element of the result combines a window, or (without WINDOW) all positions, of one channel of the input by
    a sum or a maximum."""
    REDUCTION = auto()
    """Each element of the input goes into exactly one element of the result; elements along the `axes` are combined
    by a sum, a product or an extreme, and `keepdims` says whether extents of 1 remain."""
    STEPWISE = auto()
    """REDUCTION that may be done along some axes and then along the others, and that gives a single element back as
    it is."""
    RESAMPLE = auto()
    """Reads its first input between positions: each element of the result is interpolated."""
    RECURRENT = auto()
    """Goes through a sequence step by step, each step reading what the one before it gave."""

    CHANNELS = auto()
    """Axis 0 of the first input and of the result counts samples, each computed for itself; axis 1 counts channels,
    and the axes after it are positions. Both have the same rank."""
    QUANTISED = auto()
    """Takes or gives 8-bit integers that stand for real numbers by a scale, which it may be given or leave to its
    reader, and a zero point."""


PLAIN = Trait(0)
"""No promise at all."""
