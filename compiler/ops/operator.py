"""What the compiler knows of one operator: everything, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import TensorType
from compiler.ops.traits import PLAIN, Trait

Types = tuple[TensorType | None, ...]
"""Types of a node's inputs; None for an absent optional one."""
Arrays = tuple[np.ndarray | None, ...]
"""Values of a node's inputs; None for an absent optional one."""

NOT_IN_ONNX = (0, 0)
"""The opsets of an operator that no model may contain: the compiler's own."""


class Unsupported(Exception):
    """This node, as it stands, cannot be typed or defined.

    The front end turns it into a Refusal with the node's name.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Operator:
    """One operator of ai.onnx, in its newest semantics; `compiler.frontend.opsets` brings older ones there.

    Functions may rely on: every attribute with a schema default is present in `node.attrs`; every input named in
    `parameters` has become an attribute (a tuple of ints or floats, or a scalar for a rank-0 tensor) and is None in
    `node.inputs`; types are static once dimensions are bound. An operator is a pure function: the same inputs give the
    same outputs at every run.

    infer      output types from input types. Raises Unsupported with a reason.
    reference  output arrays from input arrays, in hand-written numpy that shares no code with `define`. It computes in
               the dtype it is given: the oracle calls it with every float tensor widened to float64. The caller casts
               to the declared type.
    define     the computation as a Kernel (or Routine) whose input slots are x0, x1, ... for the inputs that are there,
               in order, and whose output slots are y0, y1, ... for the outputs asked for. Raises Unsupported with a
               reason.
    parameters inputs that must be known when compiling: (position, attribute name).
    opsets     the oldest opset whose form legalise understands, and the newest; NOT_IN_ONNX for the compiler's own.
    traits     what it promises, for stages that ask; see `Trait`. A plain operator needs none.
    indices    inputs whose elements are positions along axes of another input or of the result, within their extents.
    """

    name: str
    infer: Callable[[Node, Types], tuple[TensorType, ...]]
    reference: Callable[[Node, Arrays], tuple[np.ndarray, ...]]
    define: Callable[[Node, Types, tuple[TensorType, ...]], Kernel | Routine]
    parameters: tuple[tuple[int, str], ...] = ()
    opsets: tuple[int, int] = (6, 28)
    traits: Trait = PLAIN
    indices: tuple[int, ...] = ()
