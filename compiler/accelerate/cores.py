"""What models take on the ARM cores that stand beside accelerators: modelled, compared with no core.

A kernel takes what the cost model of the core says of its best tile, which knows products and bytes. Of a plain loop
that is too little: the C that is written for it has one vector under way at a time, so that each operation waits for
the one before. So such a loop takes at least its operations, at so many cycles each; and what is computed behind a
product in its kernel, such as a sigmoid of a convolution, adds its functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType

from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.contract.devices import MODELLED_CORES
from compiler.devices.kinds import propose, resolve
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Apply, Expr
from compiler.ir.kernel import Kernel
from compiler.ir.region import Region
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite

CORES = MODELLED_CORES
"""Whose times are modelled; the first is the one that estimates are for, and that a program is cross-compiled for."""
MODELLED = "one core, modelled by this compiler"
OPERATION_NS = MappingProxyType({"cpu:cortex-a53": 4.4 / 1.4, "cpu:cortex-a76": 1.2 / 2.4})
"""An operation of a plain loop on a vector: cycles over GHz.

The cycles are those of llvm-mca 14 for the loops of exp, log, tanh, erf, sigmoid, GELU and Mish as gcc 12 compiles them
for Cortex-A53: 4.2 to 4.8 for an instruction by its model of that core, 1.0 to 1.5 by that of Cortex-A57, which it
takes for a Cortex-A76.
"""
LANES = 4
FUNCTIONS = MappingProxyType(
    {"exp": 28, "log": 48, "log1p": 50, "tanh": 49, "erf": 63, "sigmoid": 33, "sqrt": 5, "div": 5, "reciprocal": 5}
)
"""Instructions of functions in these loops; of a root or a quotient its wait, as so many."""
CALLED = frozenset({"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "pow"})
CALL = 60
"""Instructions of a call of the C library for one element, assumed."""


def modelled_times(model: Path) -> tuple[dict[str, float | None], dict[str, float]]:
    """What a model takes on each of CORES, and of the first the share of each of its nodes, by name.

    Nothing is compiled: each kernel has its best tile, and its nodes have equal shares of its time. None where a kernel
    has no model: a loop or a branch.
    """
    kernels = _kernels(model)
    each = {core: [_seconds(kernels, call, core) for call in kernels.calls] for core in CORES}
    return {core: _added(seconds) for core, seconds in each.items()}, _shared(kernels, each[CORES[0]])


def modelled_seconds(model: bytes, core: str) -> float | None:
    """What a model takes on one of CORES, or by the cost model alone on this machine, `cpu`.

    None where a kernel has no model.
    """
    kernels = _kernels(model)
    return _added([_seconds(kernels, call, core) for call in kernels.calls])


def modelled_nodes(model: bytes, core: str) -> dict[str, float] | None:
    """The share of each node of a model, by name, of what `modelled_seconds` says; None where that is None."""
    kernels = _kernels(model)
    each = [_seconds(kernels, call, core) for call in kernels.calls]
    return None if _added(each) is None else _shared(kernels, each)


def _shared(kernels: KernelGraph, each: Sequence[float | None]) -> dict[str, float]:
    """Seconds of calls by the nodes that they were made of: equal shares of each."""
    nodes: dict[str, float] = {}
    for call, seconds in zip(kernels.calls, each, strict=True):
        for name in call.sources:
            nodes[name] = nodes.get(name, 0.0) + (seconds or 0.0) / len(call.sources)
    return nodes


def _kernels(model: Path | bytes) -> KernelGraph:
    """Those of a model as it is, without choices between rewritings."""
    return fuse(rewrite(load(model, CompileOptions(), OPERATORS).graph).graph).kernels


def operations(kernel: Kernel, plain: int = 1) -> float:
    """Instructions of a kernel as a plain loop over vectors, each value that occurs more than once computed once.

    `plain` are those of what is none of the functions.
    """
    total = 0.0
    for block in kernel.blocks:
        points = prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
        names = [one.function if isinstance(one, Apply) else "" for one in _distinct(block.values)]
        total += points * sum(LANES * CALL if name in CALLED else FUNCTIONS.get(name, plain) for name in names) / LANES
    return total


def _distinct(values: Sequence[Expr]) -> set[Expr]:
    return {one for value in values for one in value.walk()}


def _seconds(kernels: KernelGraph, call: Call, core: str) -> float | None:
    """Of a kernel under its best tile."""
    target = resolve(core)
    options = [] if isinstance(call.kernel, Region) else propose(workload_of(kernels, call), target, target.lanes)
    if not options:
        return None
    best = options[0]
    if not isinstance(call.kernel, Kernel):
        return best.seconds
    operation_s = 1e-9 * OPERATION_NS.get(core, 0.0)
    if best.tile.algorithm == "loops":
        return max(best.seconds, operation_s * operations(call.kernel))
    return best.seconds + operation_s * operations(call.kernel, plain=0)


def _added(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None
