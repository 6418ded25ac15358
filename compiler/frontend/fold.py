"""Constant propagation: which nodes over constants are computed now, and their arrays.

Sizes are known from inference before anything is computed. What is too large to compute here stays a node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.errors import VerifyError
from compiler.frontend.reading.limits import Limits
from compiler.ir.graph import Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Operator
from compiler.ops.traits import Trait

UNBOUNDED = Trait.WINDOW | Trait.RESAMPLE | Trait.RECURRENT
"""Traits of operators that are never computed here: attributes may make intermediate arrays far larger than inputs and
outputs, or the work as long as a sequence."""
MULTIPLIED_AS_IT_IS = "DequantizeLinear"
"""Weights may be multiplied without being dequantised: rewriting sees what reads them, and folds the others.

So are many codes of a byte left that a Cast makes floats.
"""
MANY_CODES = 1 << 20


def may_fold(
    operator: Operator,
    node: Node,
    arrays: Sequence[np.ndarray | None],
    results: Sequence[TensorType],
    limits: Limits,
    spent: int,
) -> bool:
    """Whether a node, all of whose inputs are constant, is to be computed; `spent` elements were computed before."""
    if operator.traits & UNBOUNDED or node.op == MULTIPLIED_AS_IT_IS or _makes_floats_of_codes(node, arrays, results):
        return False
    if Trait.RESHAPE in operator.traits and arrays[0] is not None and arrays[0].flags.c_contiguous:
        return True
    sizes = [array.size for array in arrays if array is not None]
    work = work_of(node, sizes, results)
    largest = max(*(array.nbytes for array in arrays if array is not None), *(result.bytes for result in results))
    if largest > limits.fold_bytes:
        return False
    if Trait.CONTRACTION in operator.traits and math.prod(sizes) > limits.fold_products:
        return False
    return spent + work <= limits.fold_total


def _makes_floats_of_codes(node: Node, arrays: Sequence[np.ndarray | None], results: Sequence[TensorType]) -> bool:
    if node.op != "Cast" or (codes := arrays[0]) is None or codes.size < MANY_CODES:
        return False
    return codes.dtype.itemsize == 1 and not DType.of(codes.dtype).is_float and results[0].dtype.is_float


def work_of(node: Node, sizes: Sequence[int], results: Sequence[TensorType]) -> int:
    """Elements that computing the node reads and writes."""
    return sum(sizes) + sum(result.elements for result in results)


def fold(
    operator: Operator, node: Node, arrays: tuple[np.ndarray | None, ...], results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    """The node's outputs by its reference, in the declared types.

    Raises VerifyError where reference and inference disagree.
    """
    with np.errstate(all="ignore"):
        outputs = operator.reference(node, arrays)
        if len(outputs) < len(results):
            raise VerifyError(f"the reference of {node.op} returned {len(outputs)} outputs, inference {len(results)}")
        folded = tuple(np.asarray(array) for array in outputs[: len(results)])
        for array, result in zip(folded, results, strict=True):
            if array.shape != result.dims:
                raise VerifyError(f"the reference of {node.op} returned shape {list(array.shape)}, inference {result}")
        return tuple(
            array.astype(result.dtype.numpy, copy=False) for array, result in zip(folded, results, strict=True)
        )
