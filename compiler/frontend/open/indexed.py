"""Rules for reading and writing at computed places: places beyond the sizes meet nothing that is real."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.frontend.open.extent import Extent, Number, Numbers, high, is_open, least, low
from compiler.frontend.open.site import OpenSite, capacities, fitted, is_by_data, same
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import Results, Rule, from_the_end
from compiler.ir.graph import Attr
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported


def gather_elements(site: OpenSite) -> Results:
    """GatherElements: the result has the shape of the places, which a run may not have more of along other axes."""
    values, shape = site.values, site.shape()
    axis, places = site.axis(len(shape)), site.given(1)
    pairs = zip(values.shape(places), shape, strict=True)
    whole = tuple(dim if at == axis else _no_wider(values, dim, most) for at, (dim, most) in enumerate(pairs))
    places = fitted(values, places, whole)
    if isinstance(shape[axis], Extent):
        places = from_the_end(values, places, values.scalar(shape[axis]))
    wider = tuple(at for at in range(len(shape)) if at != axis and high(whole[at]) > high(shape[at]))
    if wider:
        raise site.refuse(f"there may be more places than elements along axis {wider[0]}")
    return [values.emit("GatherElements", (site.first, places), whole, {"axis": axis})]


def _no_wider(values: OpenValues, dim: Number, most: Number) -> Number:
    """A size of places that may not be above that of the axis: where data decide that, a run demands it."""
    difference = dim - most
    if high(difference) <= 0 or low(difference) > 0 or not is_by_data(dim, most):
        return dim
    says = f"node {values.source!r:.100} takes size {dim!s:.60} to be at most {most!s:.60}, beyond which it is"
    values.demand(values.scalar(difference), min(low(difference), 0), 0, says)
    return least(dim, most) if high(dim) > high(most) else dim


def gather_nd(site: OpenSite) -> Results:
    """GatherND: one element or slice for each tuple of places."""
    values, shape = site.values, site.shape()
    batch, places = site.integer("batch_dims", 0), site.given(1)
    outer = values.shape(places)
    count = outer[-1]
    if not isinstance(count, int):
        raise site.refuse("how many places make a tuple is open")
    both = tuple(same(values, one, other) for one, other in zip(shape[:batch], outer[:batch], strict=True))
    shape, outer = (*both, *shape[batch:]), (*both, *outer[batch:])
    data, places = fitted(values, site.first, shape), fitted(values, places, outer)
    places = _tuples_from_the_end(values, places, shape[batch : batch + count])
    whole = (*outer[:-1], *shape[batch + count :])
    return [values.emit("GatherND", (data, places), whole, {"batch_dims": batch})]


def scatter_nd(site: OpenSite) -> Results:
    """ScatterND: tuples beyond the sizes write into a row that is cut off again."""
    values, shape, places = site.values, site.shape(), site.given(1)
    outer = values.shape(places)
    count = outer[-1]
    if not isinstance(count, int):
        raise site.refuse("how many places make a tuple is open")
    places, updates = _of_one_shape(values, places, site.given(2), (*outer[:-1], *shape[count:]), len(outer) - 1)
    outer = values.shape(places)
    places = _row_beyond(values, _tuples_from_the_end(values, places, shape[:count]), outer, high(shape[0]))
    data = _with_room(values, site.first, 0)
    found = values.node("ScatterND", (data, places, updates), site.attrs)
    return [values.settled(found, shape, padded=False)]


def scatter_elements(site: OpenSite) -> Results:
    """ScatterElements: places beyond the sizes write behind the end of the axis, which is cut off again."""
    values, shape, places = site.values, site.shape(), site.given(1)
    axis, outer = site.axis(len(shape)), values.shape(places)
    places, updates = _of_one_shape(values, places, site.given(2), outer, len(outer))
    outer = values.shape(places)
    if isinstance(shape[axis], Extent):
        places = from_the_end(values, places, values.scalar(shape[axis]))
    places, updates = _at_one_capacity(values, _beyond(values, places, outer, high(shape[axis])), updates)
    data = _with_room(values, site.first, axis)
    found = values.node("ScatterElements", (data, places, updates), {**site.attrs, "axis": axis})
    return [values.settled(found, shape, padded=False)]


def _of_one_shape(values: OpenValues, places: int, updates: int, wanted: Numbers, shared: int) -> tuple[int, int]:
    """Places and updates, which must have a shape, with one capacity along the first axes, which both have."""
    there = values.shape(updates)
    if len(there) != len(wanted):
        raise Unsupported(
            f"its updates have {len(there)} axes, and {len(wanted)} are written", "export the model again"
        )
    whole = tuple(same(values, one, other) for one, other in zip(wanted, there, strict=True))
    outer = (*whole[:shared], *values.shape(places)[shared:])
    return fitted(values, places, outer), fitted(values, updates, whole)


def _at_one_capacity(values: OpenValues, *ids: int) -> list[int]:
    """Values of one size while running, each without what it has room for and another has not."""
    kinds = [values.graph.type(id) for id in ids]
    if len({kind.rank for kind in kinds}) > 1:
        return [*ids]
    least = [min(dims) for dims in zip(*(kind.dims for kind in kinds), strict=True)]
    for axis, dim in enumerate(least):
        ids = tuple(id if values.graph.type(id).dims[axis] == dim else values.part(id, axis, 0, dim) for id in ids)
    return [*ids]


def reverse_sequence(site: OpenSite) -> Results:
    """ReverseSequence: no length is beyond the real end of the axis, so that what lies there stays."""
    values, shape = site.values, site.shape()
    time = shape[site.integer("time_axis", 0)]
    lengths = values.cast(site.given(1), DType.I64)
    if isinstance(time, Extent):
        lengths = values.node("Min", (lengths, values.scalar(time)))
    found = values.node("ReverseSequence", (site.first, lengths), site.attrs)
    return [values.settled(found, shape, padded=False)]


def _beyond(values: OpenValues, id: int, shape: Numbers, number: int) -> int:
    """Places as i64, with a number for all beyond the sizes."""
    if not is_open(shape):
        return id
    id = values.cast(id, DType.I64)
    for axis, dim in enumerate(shape):
        if isinstance(dim, Extent):
            id = values.beyond(id, axis, dim, number)
    return id


def _row_beyond(values: OpenValues, id: int, shape: Numbers, row: int) -> int:
    """Tuples of places as i64, all beyond the sizes with a row as their first place and 0 as the others."""
    count = high(shape[-1])
    if count < 2 or not is_open(shape):
        return _beyond(values, id, shape, row)
    axis = len(shape) - 1
    first = _beyond(values, values.part(id, axis, 0, 1), (*shape[:-1], 1), row)
    return values.joined([first, _beyond(values, values.part(id, axis, 1, count), (*shape[:-1], count - 1), 0)], axis)


def _with_room(values: OpenValues, id: int, axis: int) -> int:
    """The value with one position more along an axis."""
    rank = values.graph.type(id).rank
    pads = [0] * 2 * rank
    pads[rank + axis] = 1
    return values.node("Pad", (id, None, None), {"pads": tuple(pads), "mode": "constant"})


def _tuples_from_the_end(values: OpenValues, id: int, sizes: Numbers) -> int:
    """Tuples of places with negative ones counted from the real end of their axes."""
    if not is_open(sizes):
        return id
    elements = np.empty(len(sizes), object)
    elements[:] = sizes
    return from_the_end(values, id, values.holding(elements, DType.I64))


def depth_to_space(site: OpenSite) -> Results:
    """DepthToSpace as a reshape, a transpose and a reshape."""
    values, shape = site.values, site.shape()
    block = _block(site, shape)
    n, c, h, w = shape
    depth = c // block**2
    first = site.attrs.get("mode", "DCR") == "DCR"
    parts = (n, block, block, depth, h, w) if first else (n, depth, block, block, h, w)
    order = (0, 3, 4, 1, 5, 2) if first else (0, 1, 4, 2, 5, 3)
    return [_rearranged(values, site.first, parts, order, (n, depth, h * block, w * block))]


def space_to_depth(site: OpenSite) -> Results:
    """SpaceToDepth likewise."""
    values, shape = site.values, site.shape()
    block = _block(site, shape)
    n, c, h, w = shape
    parts = (n, c, h // block, block, w // block, block)
    for part, whole_size in ((parts[2], h), (parts[4], w)):
        same(values, part * block, whole_size)
    whole = (n, c * block**2, parts[2], parts[4])
    return [_rearranged(values, site.first, parts, (0, 3, 5, 1, 2, 4), whole)]


def _block(site: OpenSite, shape: Numbers) -> int:
    block = site.integer("blocksize", 0)
    if len(shape) != 4 or block < 1 or isinstance(shape[1], Extent):
        raise Unsupported(f"blocks of {block} do not fit [{', '.join(map(str, shape))}]", "export the model again")
    return block


def _rearranged(values: OpenValues, id: int, parts: Numbers, order: tuple[int, ...], whole: Numbers) -> int:
    """Axes split, permuted and joined, none of which needs elements to be gathered: sizes are whole blocks."""
    split = values.reshape(id, capacities(parts))
    attrs: dict[str, Attr] = {"perm": order}
    moved = values.node("Transpose", (split,), attrs)
    joined = values.reshape(moved, capacities(whole))
    return values.settled(joined, whole, padded=False)


INDEXED: Mapping[str, Rule] = {
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterND": scatter_nd,
    "ScatterElements": scatter_elements,
    "ReverseSequence": reverse_sequence,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
