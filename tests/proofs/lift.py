"""What an element of a graph's result is, as one expression over the elements of its inputs.

Each node is taken by its own definition (`Operator.define`): a load of what another node stores is replaced by what
that node stores there. A reduction stays, as the form `Reduce` beside those of `compiler.ir.expr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.ir import expr as expr_module
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where, conjunction
from compiler.ir.graph import Graph, Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from tests.proofs.known import Known
from tests.proofs.reduce import FRESH, Reduce
from tests.proofs.sizes import poly_of


class Unlifted(Exception):
    """A graph whose results are no expressions of this kind, with the reason."""


@dataclass
class Lift:
    """A graph as expressions. `names` says by which name a constant or an input is loaded."""

    graph: Graph
    constants: Mapping[int, Known | np.ndarray]
    _kernels: dict[int, Kernel] = field(default_factory=dict)
    _done: dict[tuple[int, str], Expr] = field(default_factory=dict)

    def element(self, value: int, index: tuple[Index, ...]) -> Expr:
        """The element of a value at an index. Raises Unlifted."""
        key = value, ", ".join(map(str, index))
        if key not in self._done:
            self._done[key] = self._element(value, index)
        return self._done[key]

    def _element(self, value: int, index: tuple[Index, ...]) -> Expr:
        if value in self.constants:
            return constant_at(self.constants[value], index)
        node = self.graph.producer.get(value)
        if node is None:
            return Load(f"v{value}", index, self.graph.type(value).dtype)
        kernel = self._kernel(node)
        return self._slot(node, kernel, f"y{node.outputs.index(value)}", index, len(kernel.blocks))

    def _kernel(self, node: Node) -> Kernel:
        if node.outputs[0] not in self._kernels:
            types = tuple(None if value is None else self.graph.type(value) for value in node.inputs)
            outs = tuple(self.graph.type(value) for value in node.outputs)
            kernel = OPERATORS[node.op].define(node, types, outs)
            if not isinstance(kernel, Kernel):
                raise Unlifted(f"{node.op} is no loop nest")
            if kernel.sequential or any(block.sequential for block in kernel.blocks):
                raise Unlifted(f"{node.op} goes step by step")
            self._kernels[node.outputs[0]] = kernel
        return self._kernels[node.outputs[0]]

    def _slot(self, node: Node, kernel: Kernel, slot: str, index: tuple[Index, ...], before: int) -> Expr:
        """What blocks ahead of number `before` leave in a slot at an index."""
        found: Expr | None = None
        for place in range(before):
            block = kernel.blocks[place]
            for part, store in enumerate(block.stores):
                if store.slot == slot:
                    mapping, condition = placed((*kernel.shared, *block.axes), store.index, index, kernel, slot)
                    value = self._value(node, kernel, block, part, mapping, place)
                    value = (
                        value
                        if value.dtype is kernel.slots[slot].type.dtype
                        else Cast(value, kernel.slots[slot].type.dtype)
                    )
                    found = value if condition is None or found is None else Where(condition, value, found)
        if found is None:
            raise Unlifted(f"no block of {node.op} stores {slot}")
        return found

    def _value(
        self, node: Node, kernel: Kernel, block: Block, part: int, mapping: Mapping[Axis, Index], place: int
    ) -> Expr:
        single = [axis for axis in block.reduction if poly_of(axis.extent).constant == 1]
        fresh = {axis: Axis(f"r{next(FRESH)}", axis.extent) for axis in block.reduction if axis not in single}
        whole = {**mapping, **{axis: Index.of(new) for axis, new in fresh.items()}}
        whole |= {axis: Index.of(0) for axis in single}

        def loaded(expr: Expr) -> Expr:
            if not isinstance(expr, Load):
                return expr
            if expr.slot in {slot.name for slot in kernel.inputs}:
                return self.element(node.used[int(expr.slot[1:])], expr.index)
            if expr.slot not in kernel.slots:
                return expr
            return self._slot(node, kernel, expr.slot, expr.index, place)

        values = tuple(_loads(value.substitute(whole), loaded) for value in block.values)
        if not block.monoid:
            return values[part]
        assert block.accumulator is not None
        if not fresh and block.monoid in ("sum", "prod", "max", "min"):
            return values[part] if values[part].dtype is block.accumulator else Cast(values[part], block.accumulator)
        type = values[part].dtype if block.monoid.startswith("arg") and part else block.accumulator
        return Reduce(block.monoid, tuple(fresh.values()), values, part, type)


def _loads(expr: Expr, loaded: object) -> Expr:
    """An expression with its loads replaced, those inside indices first, and what replaces them left as it is."""
    assert callable(loaded)
    if isinstance(expr, Load):
        index = tuple(position.substitute({}, lambda inner: _loads(inner, loaded)) for position in expr.index)
        replaced = loaded(Load(expr.slot, index, expr.type))
        assert isinstance(replaced, Expr)
        return replaced
    indices = tuple(position.substitute({}, lambda inner: _loads(inner, loaded)) for position in expr.indices)
    return expr.rebuild(tuple(_loads(child, loaded) for child in expr.children), indices)


def constant_at(constant: Known | np.ndarray, index: tuple[Index, ...]) -> Expr:
    """An element of a constant: of one that was drawn, what it was drawn as; else its number, if it has but one."""
    if isinstance(constant, Known):
        return constant.at(index)
    texts = {repr(item) for item in constant.reshape(-1).tolist()}
    if len(texts) != 1:
        raise Unlifted(f"a constant of shape {list(constant.shape)} was computed outside of what is followed")
    return Const(constant.reshape(-1)[0].item(), DType.of(constant.dtype))


def placed(
    axes: tuple[Axis, ...], stored: tuple[Index, ...], index: tuple[Index, ...], kernel: Kernel, slot: str
) -> tuple[dict[Axis, Index], Expr | None]:
    """At which point of its axes a block stores the element at `index`, and the condition under which one does."""
    mapping: dict[Axis, Index] = {axis: Index.of(0) for axis in axes}
    conditions: list[Expr] = []
    for position, wanted, extent in zip(stored, index, kernel.slots[slot].type.dims, strict=True):
        if not position.terms:
            if extent != 1:
                place = Apply("eq", (Position(wanted), Const(position.const, DType.I64)))
                conditions.append(place)
            continue
        if len(position.terms) == 2:  # an outer axis and an inner one: the quotient and the remainder by its extent
            (outer, factor), (inner, unit) = sorted(position.terms, key=lambda term: term[1] == 1)
            if isinstance(inner, Axis) and isinstance(outer, Axis) and unit == 1 and factor == inner.extent:
                mapping[outer] = (wanted - position.const) // inner.extent
                mapping[inner] = (wanted - position.const) % inner.extent
                continue
        if len(position.terms) > 1 or not isinstance(axis := position.terms[0][0], Axis) or position.terms[0][1] != 1:
            raise Unlifted(f"{kernel.family} stores at {position}")
        mapping[axis] = wanted - position.const
        if (reached := expr_module.inside(mapping[axis], axis.extent)) is not None:
            conditions.append(reached)
    return mapping, conjunction(conditions)


def axes_of(dims: tuple[int, ...]) -> tuple[Axis, ...]:
    """Axes over a result, named o0, o1, ..."""
    return tuple(Axis(f"o{place}", extent) for place, extent in enumerate(dims))
