"""Where sizes enter and leave a graph: inputs and outputs, and the operators that ask for shapes or are given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.frontend.open import data_dependent
from compiler.frontend.open.examples import tried
from compiler.frontend.open.extent import Extent, Number, Size, product
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.values import INDEX, OpenValues, of_size
from compiler.frontend.open.views import constant_of_shape, range_
from compiler.frontend.reading.model import Call
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import Limit, OpenDimension, OpenShapes
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

Axes = tuple[int | None, ...]
"""Of each axis of a tensor, which size it has; None for a static one."""
Ids = Sequence[int | None]


def enter(
    values: OpenValues, open_axes: Mapping[str, tuple[Size | None, ...]], dimensions: Sequence[Size]
) -> tuple[Axes, ...]:
    """Makes the sizes that the program is given inputs, after those of the model; which size each axis of these has.

    `open_axes` says by name of an input which size each of its axes has.
    """
    graph = values.graph
    numbers = {one.name: number for number, one in enumerate(dimensions)}
    inputs = [(id, open_axes.get(graph.values[id].name, ())) for id in graph.inputs]
    for one in dimensions:
        given = graph.input(INDEX, f"size:{one.name}")
        step = values.scalar(one.step)
        values.sizes[one] = given if one.step == 1 else values.node("Div", (given, step))
    for id, axes in inputs:
        if any(axes):
            dims = zip(graph.type(id).dims, axes, strict=True)
            values.shapes[id] = tuple(dim if one is None else of_size(one) for dim, one in dims)
    return tuple(
        tuple(None if one is None else numbers[one.name] for one in axes or (None,) * graph.type(id).rank)
        for id, axes in inputs
    )


def leave(
    values: OpenValues, results: Sequence[tuple[str, int]], dimensions: Sequence[Size], inputs: tuple[Axes, ...]
) -> tuple[Graph, OpenShapes]:
    """The graph with these results, and after them the sizes of their open axes and what must hold of data."""
    values.source = ""
    results = [(name, values.at_run_time(id)) for name, id in results]
    places: dict[Number, int] = {}
    outputs: list[Axes] = []
    hidden: list[tuple[str, int]] = []
    for name, id in results:
        axes: list[int | None] = []
        for axis, dim in enumerate(values.shape(id)):
            if isinstance(dim, Extent) and dim not in places:
                places[dim] = len(results) + len(hidden)
                hidden.append((f"size:{name}:{axis}", values.scalar(dim)))
            axes.append(places[dim] if isinstance(dim, Extent) else None)
        outputs.append(tuple(axes))
    opened = tuple(OpenDimension(one.name, one.low * one.step, one.high * one.step, one.step) for one in dimensions)
    limits = []
    for says, scalar, low, high in values.demands:
        pair: list[int] = []
        for number in values.equal[scalar][1:] if scalar in values.equal else ():
            if number not in places:
                places[number] = len(results) + len(hidden)
                hidden.append((f"size:{len(places)}", values.scalar(number)))
            pair.append(places[number])
        limits.append(Limit(says, low, high, len(results) + len(hidden), tuple(pair)))
        hidden.append((f"limit:{len(limits)}", scalar))
    sentences = {says for says, _, _ in values.equal.values()}
    equal = tuple(dict.fromkeys(says for says, *_ in values.demands if says in sentences))
    known = {
        number: [tuple(array.reshape(-1).tolist()) for array in values.examples[id]]
        for number, id in enumerate(values.graph.inputs[: len(inputs)])
        if id in values.examples
    }
    graph = values.graph.finish([*results, *hidden])
    sizes = {id: one.high for id, one in zip(graph.inputs[len(inputs) :], opened, strict=True)}
    found = tried(graph, values.operators, limits, known, sizes) if limits else {}
    examples = tuple((number, tuple(each)) for number, each in found.items())
    assumed = tuple(values.assumed.items())
    return graph, OpenShapes(opened, inputs, tuple(outputs), tuple(limits), examples, assumed, equal)


def shape(values: OpenValues, call: Call, ids: Ids) -> int:
    """Shape, with `start` and `end` clamped as Python slices are."""
    start, end = call.attrs.get("start", 0), call.attrs.get("end")
    dims = values.shape(_first(ids))[start if isinstance(start, int) else 0 : end if isinstance(end, int) else None]
    elements = np.empty(len(dims), object)
    elements[:] = dims
    return values.holding(elements, DType.I64)


def size(values: OpenValues, call: Call, ids: Ids) -> int:
    """Number of elements."""
    whole = np.empty((), object)
    whole[()] = product(values.shape(_first(ids)))
    return values.holding(whole, DType.I64)


def filled(values: OpenValues, call: Call, ids: Ids) -> int:
    """ConstantOfShape up to sizes, which data may say."""
    value = call.attrs.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise Unsupported("attribute 'value' is not a tensor of one element", "export the model again")
    site = OpenSite(values, call.op, tuple(ids), {}, 1)
    known = values.known(_first(ids))
    sizes = data_dependent.shape_of(site) if known is None else tuple(site.known(0, "input") or ())
    (id,) = constant_of_shape(site, sizes, value)
    return id


def counted(values: OpenValues, call: Call, ids: Ids) -> int:
    """Range between sizes, or numbers that data say."""
    site = OpenSite(values, call.op, tuple(ids), {}, 1)
    is_by_data = any(values.known(site.given(place)) is None for place in range(3))
    (id,) = data_dependent.range_(site) if is_by_data else range_(site)
    return id


def _first(ids: Ids) -> int:
    if not ids or ids[0] is None:
        raise Unsupported("its first input is absent", "export the model again")
    return ids[0]


SIZES: Mapping[str, Callable[[OpenValues, Call, Ids], int]] = {
    "ConstantOfShape": filled,
    "Range": counted,
    "Shape": shape,
    "Size": size,
}
"""Operators that become no nodes of static graphs, where an axis is open or an element is a size."""
