"""Forest, the compiler's own: what the leaves that a sample reaches in decision trees add up to.

A node is two words of one row. The first has the bits of the number that it asks for; the second has, from its lowest
bit on, the step to the row of its yes branch (signed; the no branch is the row behind that), the number of the feature
that is asked, and whether a missing value (NaN) goes to the yes branch. A leaf asks for a NaN, which nothing is less
than, and steps to the row before itself: so it leads to itself, and all trees can be walked equally many levels. The
lowest bits of that NaN are the leaf's row of weights. After Asadi, Lin and de Vries, Runtime Optimizations for
Tree-Based Machine Learning Models, IEEE TKDE 26 (2014), section 3: no branch depends on data, and several trees are
walked at once to hide latencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import ints, number_of
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, optional, output_slots, present

FOREST = "Forest"
GROUP = 8
"""Trees that are walked together, by the number of levels of the deepest."""
AGGREGATES = ("SUM", "MIN", "MAX")
SIZE = 5
"""The input that says how many samples are real; absent: all."""
ROWS = 1024
"""Samples that the reference walks at once."""


@dataclass(frozen=True)
class Layout:
    """Where the parts of a node lie, by the type of the numbers that are compared."""

    word: DType
    step_bits: int
    feature_bits: int
    nan: int
    leaf_bits: int

    @property
    def numbers(self) -> np.dtype:
        """Of what is compared."""
        return np.dtype(np.float64 if self.word is DType.I64 else np.float32)

    def fits(self, steps: np.ndarray, features: np.ndarray, leaves: int) -> bool:
        """Whether nodes with these have room."""
        most = 1 << (self.step_bits - 1)
        fit = not steps.size or (steps.max() < most and features.max() < 1 << self.feature_bits)
        return bool(fit) and leaves <= 1 << self.leaf_bits

    def pack(
        self, splits: np.ndarray, features: np.ndarray, steps: np.ndarray, missing: np.ndarray, leaves: np.ndarray
    ) -> np.ndarray:
        """[nodes, 2]; `leaves` is -1 for an inner node, else its row of weights, and then the rest does not count."""
        word = self.word.numpy
        asked = splits.astype(self.numbers)
        asked[np.isnan(asked)] = np.nan
        is_leaf = leaves >= 0
        first = np.where(is_leaf, self.nan | leaves, asked.view(word)).astype(word)
        step = np.where(is_leaf, -1, steps) & ((1 << self.step_bits) - 1)
        feature = np.where(is_leaf, 0, features) << self.step_bits
        sign = np.where(missing & ~is_leaf, -1 << (self.step_bits + self.feature_bits), 0)
        return np.stack([first, (step | feature | sign).astype(word)], axis=1)

    def steps(self, words: np.ndarray) -> np.ndarray:
        """Of the second words of nodes."""
        free = 64 - self.step_bits
        return (words.astype(np.int64) << free) >> free

    def features(self, words: np.ndarray) -> np.ndarray:
        """Of the second words of nodes."""
        return (words.astype(np.int64) >> self.step_bits) & ((1 << self.feature_bits) - 1)


NARROW = Layout(DType.I32, 16, 15, 0x7FC00000, 22)
WIDE = Layout(DType.I64, 32, 31, 0x7FF8 << 48, 51)


def layout_of(dtype: DType) -> Layout:
    """Of nodes whose words are of a type."""
    return NARROW if dtype is DType.I32 else WIDE


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, nodes, roots, targets, weights = (given(types, position) for position in range(5))
    layout = layout_of(nodes.dtype)
    wanted = DType.of(layout.numbers)
    levels = ints(node, "levels") or ()
    fits = (
        x.rank == nodes.rank == weights.rank == 2
        and (x.dtype, nodes.dtype, weights.dtype) == (wanted, layout.word, wanted)
        and roots == targets == TensorType(DType.I32, (GROUP * len(levels),))
        and nodes.shape[1] == 2
        and (not present(types, SIZE) or given(types, SIZE) == TensorType(DType.I64, ()))
        and node.attrs.get("aggregate") in AGGREGATES
    )
    if not fits:
        raise Unsupported(f"tables {nodes}, {roots}, {targets} and {weights} are no trees for {x}", "report this model")
    return (TensorType(x.dtype, (x.shape[0], int(number_of(node, "targets", 1)))),)


def _define(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Routine:
    """Routine `forest`: for each sample the aggregate over all trees, zero for samples from the size on."""
    params: dict[str, Attr] = {
        "levels": ints(node, "levels") or (),
        "aggregate": str(node.attrs["aggregate"]),
        "strict": bool(node.attrs.get("strict", 0)),
        "missing": bool(node.attrs.get("missing", 0)),
    }
    return Routine(FOREST, "forest", input_slots(types), output_slots(outputs), params)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, nodes, roots, firsts, weights = arrays_at(arrays, 0, 1, 2, 3, 4)
    size = optional(arrays, SIZE)
    real = len(x) if size is None else min(max(int(size), 0), len(x))
    result = np.zeros((len(x), int(number_of(node, "targets", 1))), weights.dtype)
    for begin in range(0, real, ROWS):
        part = slice(begin, min(begin + ROWS, real))
        result[part] = _total(node, _leaves(node, x[part], nodes, roots), firsts, weights, result.shape[1])
    return (result,)


def _leaves(node: Node, x: np.ndarray, nodes: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """[samples, trees]: the row of weights of each leaf that is reached."""
    layout = layout_of(DType.of(nodes.dtype))
    asked, words = np.ascontiguousarray(nodes[:, 0]), nodes[:, 1]
    splits, steps, features = asked.view(layout.numbers), layout.steps(words), layout.features(words)
    strict, missing = bool(node.attrs.get("strict", 0)), words < 0
    at = np.broadcast_to(roots.astype(np.int64), (len(x), len(roots)))
    for _ in range(max(ints(node, "levels") or (0,))):
        value = np.take_along_axis(x, features[at], axis=1)
        yes = (value < splits[at]) if strict else (value <= splits[at])
        yes |= np.isnan(value) & missing[at]
        at = at + steps[at] + ~yes
    return asked[at] & ((1 << layout.leaf_bits) - 1)


def _total(node: Node, leaves: np.ndarray, firsts: np.ndarray, weights: np.ndarray, targets: int) -> np.ndarray:
    """[samples, targets] of the leaves that are reached."""
    combine = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[str(node.attrs["aggregate"])]
    width = weights.shape[1]
    start = {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}[str(node.attrs["aggregate"])]
    result = np.full((len(leaves), targets), start, weights.dtype)
    for tree, first in enumerate(firsts.tolist()):
        part = result[:, first : first + width]
        combine(part, weights[leaves[:, tree]], out=part)
    return result


OPERATORS: tuple[Operator, ...] = (Operator(FOREST, _infer, _reference, _define, opsets=NOT_IN_ONNX),)
"""`Forest(x, nodes, roots, firsts, weights, [size])`: x [N, features]; nodes [nodes, 2], see `Layout`; of each tree the
row of its root and the first target that its leaves say something of; weights [leaves, width]. Gives [N, targets].
Trees come in groups of GROUP; `levels` has the deepest of each. `strict`: a sample goes to the yes branch where its
value is less than what the node asks for, else where it is not greater. `missing`: whether any node says where missing
values go."""
