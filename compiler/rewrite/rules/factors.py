"""A product as exporters write it, in any order and association, read as a coefficient and its factors."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.ir.graph import Node
from compiler.rewrite.view import View

DEPTH = 6
"""How many products inside each other are read as one."""


@dataclass
class Product:
    """coefficient * product of `factors` (values, sorted, with repetition); `nodes` are those that multiply them."""

    coefficient: float = 1.0
    factors: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def without(self, value: int, times: int = 1) -> list[int] | None:
        """The other factors; None where `value` is not there so often."""
        if self.factors.count(value) < times:
            return None
        rest = [factor for factor in self.factors if factor != value]
        return rest + [value] * (self.factors.count(value) - times)


def product(view: View, value: int) -> Product:
    """A value taken apart along Mul, Div by a constant and Pow to a small whole number."""
    found = Product()
    _multiply(view, value, found, DEPTH)
    found.factors.sort()
    return found


def _multiply(view: View, value: int, found: Product, depth: int) -> None:
    number = view.scalar(value)
    node = view.producer(value, "Mul", "Div", "Pow") if depth else None
    if number is not None:
        found.coefficient *= number
    elif node is None:
        found.factors.append(value)
    elif node.op == "Mul":
        found.nodes.append(node)
        for operand in node.used:
            _multiply(view, operand, found, depth - 1)
    else:
        constant = view.scalar(node.inputs[1])
        if node.op == "Div" and constant:
            found.nodes.append(node)
            found.coefficient /= constant
            _multiply(view, node.used[0], found, depth - 1)
        elif node.op == "Pow" and constant in (2.0, 3.0):
            found.nodes.append(node)
            for _ in range(int(constant)):
                found.factors.append(node.used[0])
        else:
            found.factors.append(value)


def plus_constant(view: View, value: int, constant: float) -> tuple[int, Node] | None:
    """The x of x + constant, and the Add that makes it."""
    node = view.producer(value, "Add")
    if node is not None:
        for x, other in (node.used, node.used[::-1]):
            if view.scalar(other) == constant and view.scalar(x) is None:
                return x, node
    return None
