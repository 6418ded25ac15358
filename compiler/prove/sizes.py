"""Sizes of dimensions that a graph leaves open: where it is judged, what it is given there, what of its outputs counts.

What is given at sizes are inputs of exactly these sizes; the graph itself takes them as large as they may become, zero
beyond (`compiler.ir.open_shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.contract import CompileOptions, DimRange, InputSpec
from compiler.ir.border import RANDOM_STATE
from compiler.ir.graph import Graph, Value
from compiler.ir.open_shapes import Example, OpenShapes

DRAWN = 3
"""Sizes of all dimensions that are drawn from their ranges, besides opt, min and max."""


def usual_sizes(options: CompileOptions, shapes: OpenShapes) -> dict[str, int]:
    """The opt of each dimension, by name; within what the model leaves of its range.

    Of a dimension that no option names, which is the compiler's own, the one of examples, or the largest.
    """
    shown = {}
    for number, examples in shapes.examples:
        sole = [axis for axis in shapes.inputs[number] if axis is not None]
        if len(sole) == len(shapes.inputs[number]) == 1:
            shown[shapes.dimensions[sole[0]].name] = len(examples[0])
    opts = {name: one.opt for name, one in options.open_sizes.items()}
    return {
        one.name: max(one.low, min(one.high, opts.get(one.name, shown.get(one.name, one.high)) // one.step * one.step))
        for one in shapes.dimensions
    }


def dims_json(options: CompileOptions, shapes: OpenShapes | None) -> dict[str, Any]:
    """The dimensions of a single binding, as options give them, with what the model leaves of their ranges."""
    dims: dict[str, Any] = dict(options.binding)
    if shapes is not None:
        usual = usual_sizes(options, shapes)
        dims |= {one.name: DimRange(one.low, usual[one.name], one.high).to_json() for one in shapes.dimensions}
    known = {one.name for one in shapes.dimensions} if shapes else set()
    return {name: size for name, size in dims.items() if name in known or name not in options.open_sizes}


def exactly(options: CompileOptions, graph: Graph, shapes: OpenShapes, sizes: Mapping[str, int]) -> CompileOptions:
    """Options for the model at exact sizes of the dimensions that its graph leaves open, by name."""
    inputs = dict(options.inputs)
    for value, axes in zip(graph.inputs, shapes.inputs, strict=False):
        if graph.values[value].name == RANDOM_STATE:
            continue
        dims = zip(graph.type(value).dims, axes, strict=True)
        shape = tuple(dim if number is None else sizes[shapes.dimensions[number].name] for dim, number in dims)
        inputs[graph.values[value].name] = InputSpec(shape)
    fixed = {name: size for name, size in options.binding.items() if name not in options.open_sizes}
    return replace(options, dims=fixed, inputs=inputs)


def nested(elements: Example, shape: tuple[int, ...]) -> Any:
    """Elements in row-major order as options fix an input to them: nested tuples, a number for a scalar."""

    def tuples(item: Any) -> Any:
        return tuple(map(tuples, item)) if isinstance(item, list) else item

    return tuples(np.array(elements).reshape(shape).tolist())


def judged_sizes(
    shapes: OpenShapes, usual: Mapping[str, int], seed: int
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """At which sizes a program is judged: the usual ones, the smallest and largest of all; and some that are drawn."""
    random = np.random.default_rng(seed)
    dimensions = shapes.dimensions
    ends = [dict(usual), {one.name: one.low for one in dimensions}, {one.name: one.high for one in dimensions}]
    drawn = [
        {one.name: one.step * int(random.integers(one.low // one.step, one.high // one.step + 1)) for one in dimensions}
        for _ in range(DRAWN)
    ]
    return [one for at, one in enumerate(ends) if one not in ends[:at]], drawn


def sizes_of(shapes: OpenShapes, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The sizes of inputs, in order, that fit: by name of the dimension."""
    return {
        shapes.dimensions[number].name: array.shape[axis]
        for array, axes in zip(arrays, shapes.inputs, strict=True)
        for axis, number in enumerate(axes)
        if number is not None
    }


def padded(graph: Graph, shapes: OpenShapes, arrays: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """What the graph takes, by value id, for inputs in order: zero beyond them, and their sizes."""
    sizes = sizes_of(shapes, arrays)
    given: dict[int, np.ndarray] = {}
    for value, array in zip(graph.inputs[: len(arrays)], arrays, strict=True):
        given[value] = np.zeros(graph.type(value).dims, array.dtype)
        given[value][tuple(map(slice, array.shape))] = array
    for value, dimension in zip(graph.inputs[len(arrays) :], shapes.dimensions, strict=True):
        given[value] = np.asarray(sizes[dimension.name], np.int64)
    return given


def own_outputs(graph: Graph, shapes: OpenShapes | None) -> list[Value]:
    """The graph's outputs that are the model's, in order."""
    return [graph.values[value] for value in graph.outputs[: len(shapes.outputs) if shapes else None]]


def cut(graph: Graph, shapes: OpenShapes | None, values: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs, in order, at the sizes that the graph itself gave; `values` has all of its outputs by id."""
    if shapes is None:
        return [values[value] for value in graph.outputs]
    found = []
    for value, axes in zip(graph.outputs[: len(shapes.outputs)], shapes.outputs, strict=True):
        ends = [None if number is None else int(values[graph.outputs[number]]) for number in axes]
        found.append(values[value][tuple(map(slice, ends))])
    return found
