"""Mistakes that somebody might make in a rule, each a change of its text, of which the solver must find an example."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.rewrite import Rule
from tests.compiler.rewrite.sketch import Sketch
from tests.proofs.attempt import Drawing, Refuted, Unproved, attempt
from tests.proofs.catalogue import SUBJECTS
from tests.proofs.instances import EVERYTHING, LITERAL


@dataclass(frozen=True)
class Mistake:
    """`old` in the text of the rule's module, or of `module`, becomes `new`.

    `drawn_as` names the rule whose left sides show it, if these are not its own.
    """

    rule: str
    what: str
    old: str
    new: str
    module: str = ""
    drawn_as: str = ""


RULES, MAPS = "compiler.rewrite.rules", "compiler.legalise.rules.maps"
MISTAKES = (
    Mistake(
        "add_negative_zero",
        "the other zero, which takes the sign of -0.0",
        "if _neutral(view, node, side, -0.0):",
        "if _neutral(view, node, side, 0.0):",
        drawn_as="zero_added",
    ),
    Mistake(
        "where_of_not",
        "operands stay in their places",
        "(inner.used[0], node.used[2], node.used[1])",
        "(inner.used[0], node.used[1], node.used[2])",
    ),
    Mistake("where_decided", "the wrong operand", "x if known.all() else y", "y if known.all() else x"),
    Mistake(
        "logic_decided",
        "the element that decides",
        '(known == (node.op == "And"))',
        '(known == (node.op == "Or"))',
        drawn_as="logic_absorbed",
    ),
    Mistake(
        "multiply_by_minus_one",
        "no sign",
        'draft.node("Neg", (node.inputs[1 - side],))',
        'draft.node("Abs", (node.inputs[1 - side],))',
    ),
    Mistake(
        "add_negated",
        "the sum keeps its operator",
        'draft.node("Sub" if node.op == "Add" else "Add"',
        "draft.node(node.op",
    ),
    Mistake(
        "transpose_of_transpose",
        "permutations in the wrong order",
        "both = tuple(first[axis] for axis in _perm(view, node))",
        "both = tuple(_perm(view, node)[axis] for axis in first)",
        drawn_as="square_transposes",
    ),
    Mistake(
        "transpose_of_unit_axes",
        "axes that are longer than 1 may change places",
        "    if moved != sorted(moved):\n        return None\n",
        "",
        drawn_as="transpose_of_transpose",
    ),
    Mistake(
        "slice_of_slice",
        "the inner step is forgotten",
        "(start + step * first, step * stride, count)",
        "(start + first, stride, count)",
    ),
    Mistake("slice_of_slice", "off by one", "(start + step * first,", "(max(start + step * first - 1, 0),"),
    Mistake(
        "concat_of_split",
        "parts in any order",
        "if split is None or tuple(node.used) != split.outputs or",
        "if split is None or len(node.used) != len(split.outputs) or",
        drawn_as="concat_of_exchanged_parts",
    ),
    Mistake(
        "cast_of_cast",
        "a type between that loses something",
        "    if middle not in LOSSLESS.get(start, ()):\n"
        '        return No(f"a cast from {start} to {middle} loses something")\n',
        "",
        drawn_as="cast_to_bool",
    ),
    Mistake("divide_by_constant", "no reciprocal", "rounded(1.0 / wide(array), view", "rounded(wide(array), view"),
    Mistake(
        "multiply_constants",
        "a sum for a product",
        "else wide(array) * wide(outer)",
        "else wide(array) + wide(outer)",
    ),
    Mistake(
        "pad_of_pad",
        "begins and ends exchanged",
        "(*(a[0] + b[0] for a, b in both), *(a[1] + b[1] for a, b in both))",
        "(*(a[0] + b[1] for a, b in both), *(a[1] + b[0] for a, b in both))",
    ),
    Mistake(
        "pad_into_conv",
        "begins and ends exchanged",
        "added = (*(begin for begin, _ in more), *(end for _, end in more))",
        "added = (*(end for _, end in more), *(begin for begin, _ in more))",
        drawn_as="padded_convolution",
    ),
    Mistake(
        "clamp_of_clamp",
        "the inner bounds are forgotten",
        "_clamped(a, low, high, low), _clamped(b, low, high, high)",
        "low, high",
    ),
    Mistake(
        "leaky_relu_by_where",
        "slopes above 1",
        '    if node.op == "Max" and not ((slope > 0) & (slope <= 1)).all():\n'
        '        return No("a slope is not between 0 and 1")\n',
        "",
    ),
    Mistake(
        "scale_into_weights",
        "the bias is not scaled",
        "total if scale is None else total * scale",
        "total",
        module="compiler.rewrite.linear",
    ),
    Mistake(
        "shift_into_bias",
        "the wrong sign",
        "total if shift is None else total + shift",
        "total if shift is None else total - shift",
        module="compiler.rewrite.linear",
    ),
    Mistake(
        "map_of_split",
        "another operator's parts",
        "draft.node(node.op, (split.used[0], *node.inputs[1:])",
        'draft.node("Neg", (split.used[0], *node.inputs[1:])',
    ),
    Mistake(
        "constants_of_split",
        "constants in reverse",
        "np.concatenate(filled, axis)",
        "np.concatenate(filled[::-1], axis)",
    ),
    Mistake(
        "reduction_of_transpose",
        "axes are not renamed",
        "tuple(sorted(perm[axis] for axis in axes))",
        "tuple(sorted(axes))",
        drawn_as="reduction_of_square_transpose",
    ),
    Mistake(
        "depth_to_space_by_transpose",
        "the orders exchanged",
        '{"blocksize": block, "mode": mode}',
        '{"blocksize": block, "mode": "CRD" if mode == "DCR" else "DCR"}',
    ),
    Mistake("maximum_as_relu", "the wrong operand", 'w.node("Add", b, w.node("Relu"', 'w.node("Add", a, w.node("Relu"'),
    Mistake("minimum_as_relu", "the wrong sign", 'w.node("Sub", a, w.node("Relu"', 'w.node("Add", a, w.node("Relu"'),
    Mistake(
        "absolute_as_relus",
        "one side alone",
        "np.array([[1], [-1]]), np.zeros((2, 1)), np.ones((2, 1))",
        "np.array([[1], [1]]), np.zeros((2, 1)), np.ones((2, 1))",
    ),
    Mistake("hard_sigmoid_as_clip", "the wrong upper bound", "w.number(6)", "w.number(1)"),
    Mistake("mean_as_product", "a sum for a mean", '1 / dims[-1] if node.op == "ReduceMean" else 1.0', "1.0"),
    Mistake("gemm_as_product", "alpha is forgotten", 'number_of(node, "alpha", 1.0)', "1.0"),
)
"""At least twenty, of each kind: a condition that is missing, an axis, a place, a sign, an order, an identity."""


def _square(s: Sketch) -> Graph:
    return s.graph(s("Transpose", s("Transpose", s.x(3, 3, 3), perm=(1, 2, 0)), perm=(0, 2, 1)))


def _zero(s: Sketch) -> Graph:
    return s.graph(s("Add", s("Neg", s.x(2)), s.c(0.0)))


def _padded(s: Sketch) -> Graph:
    padded = s("Pad", s.x(1, 1, 5), None, None, None, pads=(0, 0, 2, 0, 0, 1))
    return s.graph(s("Conv", padded, s.normal(1, 1, 2)))


def _absorbed(s: Sketch) -> Graph:
    return s.graph(s("And", s.x(2, dtype=DType.BOOL), s.c([False, False], DType.BOOL)))


def _exchanged(s: Sketch) -> Graph:
    first, second = s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(2, 2))
    return s.graph(s("Abs", s("Concat", second, first, axis=1)))


def _reduced(s: Sketch) -> Graph:
    moved = s("Transpose", s.x(2, 2, 3), perm=(1, 0, 2))
    return s.graph(s("ReduceSum", moved, None, axes=(0,), keepdims=1, noop_with_empty_axes=0))


def _cast(s: Sketch) -> Graph:
    return s.graph(s("Cast", s("Cast", s.x(3), to=9), to=1))


DRAWN: Mapping[str, tuple[tuple[Drawing, int, None], ...]] = {
    "cast_to_bool": ((_cast, 0, None),),
    "zero_added": ((_zero, 0, None),),
    "padded_convolution": ((_padded, 0, None),),
    "square_transposes": ((_square, 0, None),),
    "logic_absorbed": ((_absorbed, 0, None),),
    "concat_of_exchanged_parts": ((_exchanged, 0, None),),
    "reduction_of_square_transpose": ((_reduced, 0, None),),
}
"""Left sides of the rules with their mistakes, which the right rules leave alone."""


def changed(mistake: Mistake) -> Rule:
    """The rule with the mistake in it. Raises ValueError where its text is not found once."""
    own = SUBJECTS[mistake.rule].rule
    place = importlib.import_module(mistake.module or own.match.__module__)
    text = inspect.getsource(place)
    if text.count(mistake.old) != 1:
        raise ValueError(f"`{mistake.old}` stands {text.count(mistake.old)} times in {place.__name__}")
    module = _made(place.__name__, text.replace(mistake.old, mistake.new))
    if mistake.module:  # the rule's own module, that knows the changed one
        with _known_as(place.__name__, module):
            module = _made(own.match.__module__, inspect.getsource(importlib.import_module(own.match.__module__)))
    return Rule(own.kind, own.ops, vars(module)[mistake.rule])


MADE = " with a mistake"


def _made(name: str, text: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name + MADE] = module
    exec(compile(text, name, "exec"), module.__dict__)
    return module


class _known_as:  # noqa: N801 (a context)
    def __init__(self, name: str, module: ModuleType) -> None:
        self.name, self.module = name, module

    def __enter__(self) -> None:
        self.before = sys.modules[self.name]
        sys.modules[self.name] = self.module

    def __exit__(self, *_: object) -> None:
        sys.modules[self.name] = self.before


def example_of(mistake: Mistake) -> str | None:
    """An example of a mistake in words, found by the solver; None where it finds none."""
    rule = changed(mistake)
    left = DRAWN.get(mistake.drawn_as) or SUBJECTS[mistake.drawn_as or mistake.rule].left
    for literal in (LITERAL[0], EVERYTHING):
        for drawing, seed, profile in left:
            try:
                made = [module for name, module in sys.modules.items() if name.endswith(MADE)]
                attempt(rule, drawing, seed, literal, profile, tuple(made))
            except Refuted as error:
                return str(error)
            except Unproved:
                continue
    return None
