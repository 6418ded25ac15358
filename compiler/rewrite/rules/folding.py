"""What is constant is computed now."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.tensor import TensorType
from compiler.ops import OPERATORS, having
from compiler.ops.operator import Arrays
from compiler.ops.pieces import InPieces
from compiler.ops.traits import Trait
from compiler.rewrite.gain import WINDOWED_POOLS, operations
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.rules.quantised import product_of_bytes_behind
from compiler.rewrite.view import No, Rewrite, View

LARGEST = 64 << 20
"""Bytes of a result that is computed now, but for a matrix made of codes."""
GROWTH = 1 << 20
"""Bytes by which a result may exceed what it is made from: a program does not carry what it can spread itself."""
PRODUCTS = 1 << 28
"""Operations of an operator whose work is a product of its inputs' sizes, or of its result and a window."""

MADE_OF_CODES = having(Trait.ELEMENTWISE) | {"DequantizeLinear"}
FOLLOWED = having(Trait.ELEMENTWISE) | having(Trait.VIEW)
"""Operators that may stand between what makes a matrix of codes and the product with it."""
CONTRACTIONS = having(Trait.CONTRACTION)
SEQUENTIAL = having(Trait.RECURRENT) | having(Trait.RESAMPLE) | {"LRN"}
"""Operators whose reference is slow for its size."""


def constant_folding(view: View, node: Node) -> Rewrite | No | None:
    """f(c) = the constant f(c)."""
    if not node.used or any(value not in view.constants for value in node.used) or node.op not in OPERATORS:
        return None
    if any(value in view.outputs for value in node.outputs):
        return No("it is a graph output, which is written when the program runs")
    why = f"all inputs of {node.op} are constant"
    if node.op == "DequantizeLinear":
        product = product_of_bytes_behind(view, node)
        if isinstance(product, Rewrite):
            return No("a product is to be computed from its bytes")
        why += f", and no product is computed from its bytes: {product.reason}" if product else ""
    arrays = tuple(view.constant(value) for value in node.inputs)
    types = [view.type(value) for value in node.outputs]
    read, written = sum(a.nbytes for a in arrays if a is not None), sum(type.bytes for type in types)
    readers = _readers_of_codes(view, node) if written > GROWTH else set()
    if readers == {"Gather"}:
        return No("its rows are gathered as codes")
    if (written > LARGEST and not readers & CONTRACTIONS) or written > 8 * read + GROWTH:
        return No(f"its result of {written} bytes is too large to be kept")
    contracted = node.op in CONTRACTIONS and math.prod(a.size for a in arrays if a is not None) > PRODUCTS
    pooled = node.op in WINDOWED_POOLS and operations(node, view.type) > PRODUCTS
    if node.op in SEQUENTIAL or contracted or pooled:
        return No("it is too much work to be done while compiling")
    with np.errstate(all="ignore"):
        results = _results(node, arrays, types)
        folded = tuple(
            np.asarray(r).astype(type.dtype.numpy, copy=False) for r, type in zip(results, types, strict=True)
        )
    if any(array.shape != type.dims for array, type in zip(folded, types, strict=True)):
        return No("its reference gives another shape than was inferred")
    return view.draft(node).folded(folded, why)


def _results(node: Node, arrays: Arrays, types: Sequence[TensorType]) -> tuple[np.ndarray, ...]:
    """Those of a reference; of one in pieces each piece is brought to the declared type."""
    reference = OPERATORS[node.op].reference
    if not isinstance(reference, InPieces):
        return reference(node, arrays)[: len(types)]
    made = reference.pieces(node, arrays)
    made.dtype = types[0].dtype.numpy
    return (made.assembled(),)


def _readers_of_codes(view: View, node: Node) -> set[str]:
    """The operators that read floats which are made here of integers, or of what was made of them; empty for others.

    Matrices become codes again where kernels multiply by them (`compiler.encodings.quantised`), however many they are.
    Of a table kernels make the rows floats that they gather. A Cast of floats to wider ones is left: they are widened
    where they are read.
    """
    value = node.outputs[0]
    is_cast = node.op == "Cast" and view.type(node.used[0]).dtype.is_float
    if node.op not in MADE_OF_CODES or is_cast or not view.type(value).dtype.is_float:
        return set()
    found: set[str] = set()
    seen = {value}
    waiting = [value]
    while waiting:
        value = waiting.pop()
        for reader in view.readers(value):
            beside = all(other == value or other in view.constants for other in reader.used)
            if reader.op not in FOLLOWED or not beside:
                found.add(reader.op if reader.op != "Gather" or _gathers_rows(view, reader, value) else "other Gather")
            elif reader.outputs[0] not in seen:
                seen.add(reader.outputs[0])
                waiting.append(reader.outputs[0])
    return found


def _gathers_rows(view: View, reader: Node, value: int) -> bool:
    """Whether a Gather takes fewer elements of a value than it has."""
    return reader.used[0] == value and view.type(reader.outputs[0]).elements < view.type(value).elements


RULES: tuple[Rule, ...] = (Rule(EXACT, (), constant_folding),)
