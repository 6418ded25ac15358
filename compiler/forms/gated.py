"""Sums of products of which a factor varies along the summed axes alone: it may scale either operand."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.expr import Apply, Expr
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel


def gate_on_other_operand(kernel: Kernel) -> Kernel | None:
    """sum k . (g[k] x[m, k]) w[k, n] = sum k . x[m, k] (g[k] w[k, n]), whichever operand has the gate g; else None.

    Squeeze-and-excitation (Hu et al., CVPR 2018) scales the channels of an image right before a product. Of image and
    weights the smaller one is scaled for less.
    """
    product, *maps = kernel.blocks
    value = product.values[0]
    if product.monoid != "sum" or not isinstance(value, Apply) or value.function != "mul":
        return None
    summed = frozenset(product.reduction)
    for operand, other in (value.args, value.args[::-1]):
        if not isinstance(operand, Apply) or operand.function != "mul":
            continue
        for gate, rest in (operand.args, operand.args[::-1]):
            if gate.loads and _varies(gate) <= summed and not _varies(rest) <= summed:
                moved = Apply("mul", (rest, Apply("mul", (gate, other))))
                return replace(kernel, blocks=(replace(product, values=(moved,)), *maps))
    return None


def _varies(expr: Expr) -> frozenset[Axis]:
    return frozenset(axis for axis in expr.axes if axis.extent > 1)
