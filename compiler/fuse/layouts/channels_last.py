"""Which values lie channels-last in memory.

Convolution and pooling read a window at every channel: with the channels innermost a window is a few contiguous
segments, and results of a contraction over channels are stored as whole vectors. So their operands and results, and all
that elementwise operators tie to them, lie channels-last. Graph inputs and outputs keep the user's order, what Routines
read and write is plain as they demand, and so is everything else.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import Layout
from compiler.ops import having
from compiler.ops.traits import Trait

REGIONS = {"MaxOfRegions", "RoiAlign", "SamplesOfRegions"}
WINDOWED = having(Trait.CHANNELS) - {"GroupNormalization", "GridSample"} | REGIONS
"""Operators that ask for channels innermost. Others of that kind take what their neighbours have: a GroupNormalization
sums over positions and channels alike, and a GridSample's grid has no channels.
Regions are no samples, but their channels stay channels: where a sample lies is then computed once for all of them."""

UNTIED = having(Trait.RESHAPE) | having(Trait.CONTRACTION) | {"Transpose", "Gather", "Expand", "Tile", "Softmax"}
"""Operators whose result has other axes than their operands, or gains nothing from having them in the same order."""
WEIGHTS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Which input of a convolution its weights are."""
NARROW_GROUP = 8
"""Output channels per group below which a convolution is not lowered as a matrix product."""


def choose_layouts(graph: Graph, plain: frozenset[int], free: frozenset[int] = frozenset()) -> dict[int, Layout]:
    """A layout for every value and constant that is not plain.

    Those of `plain` have to be plain; graph inputs and outputs of `free` need not.
    """
    last = _spread(graph, _seeds(graph) - plain, plain)
    fixed = {*graph.inputs, *graph.outputs} - free | {*graph.constants}
    layouts = {value: Layout.channels_last(graph.type(value).rank) for value in last - fixed}
    for node in graph.nodes:
        layouts |= _weight_layouts(graph, node)
    return {value: layout for value, layout in layouts.items() if value not in plain}


def _seeds(graph: Graph) -> set[int]:
    seeds: set[int] = set()
    for node in graph.nodes:
        if node.op in WINDOWED and graph.type(node.outputs[0]).rank >= 3:
            seeds |= {node.outputs[0], node.used[0]}
    return {value for value in seeds if graph.type(value).rank >= 3}


def _spread(graph: Graph, seeds: set[int], plain: frozenset[int]) -> set[int]:
    """Adds values that are tied to one already chosen."""
    chosen, tied = set(seeds), ties(graph)
    while True:
        before = len(chosen)
        for values in tied:
            if any(value in chosen for value in values):
                chosen |= {value for value in values if value not in graph.constants and value not in plain}
        if len(chosen) == before:
            return chosen


def ties(graph: Graph) -> list[tuple[int, ...]]:
    """Values of the same rank that an operator without a window ties, dimension by dimension."""
    found = []
    for node in graph.nodes:
        if node.op not in WINDOWED and _keeps_axes(graph, node):
            rank = graph.type(node.outputs[0]).rank
            found.append(tuple(value for value in (*node.used, *node.outputs) if graph.type(value).rank == rank))
    return found


def _keeps_axes(graph: Graph, node: Node) -> bool:
    """Whether output axes are the input's: elementwise, Concat, Pad, Slice, Split, reductions that keep dimensions.

    A scalar, such as a size or a scale, has no axes that could lie otherwise.
    """
    if node.op in UNTIED:
        return False
    rank = graph.type(node.outputs[0]).rank
    return rank >= 3 and all(graph.type(value).rank in (0, rank) for value in node.used if value not in graph.constants)


def _weight_layouts(graph: Graph, node: Node) -> dict[int, Layout]:
    """Weights of narrow-group convolutions with the output channel innermost: the axis that their loops vectorise."""
    weight = node.inputs[WEIGHTS[node.op]] if node.op in WEIGHTS else None
    if weight not in graph.constants:
        return {}
    assert weight is not None
    groups, rank = node.attrs.get("group", 1), graph.type(weight).rank
    assert isinstance(groups, int)
    if groups == 1 or graph.type(weight).dims[0] // groups >= NARROW_GROUP:
        return {}
    return {weight: Layout((*((axis, 0) for axis in range(2, rank)), (1, 0), (0, 0)))}
