"""What an operator makes of open axes: a rule of its own, or what its kernel says.

Without a rule an operator is taken where its kernel keeps the points of every open axis apart, or, for a sum of
products, adds them up: zeros change no sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.frontend.expansions.site import NotKnown
from compiler.frontend.open.carried import carried
from compiler.frontend.open.combine import COMBINE, NORMALISE, RECURRENCES, reduction
from compiler.frontend.open.evaluation import evaluated
from compiler.frontend.open.extent import Extent, Number, Numbers, high, is_open
from compiler.frontend.open.indexed import INDEXED
from compiler.frontend.open.products import fitting
from compiler.frontend.open.site import OpenSite, broadcast, fitted, iota, same
from compiler.frontend.open.sized import DATA_DEPENDENT, is_data_dependent
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import VIEWS
from compiler.frontend.open.windows import WINDOWS
from compiler.frontend.opsets.legalise import plain
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.slots import slot_names
from compiler.ops.traits import Trait

BY_DATA = {"Slice": (1, 2), "TopK": (1,)}
"""Inputs that say places or counts, and may be computed from data: what they say has a bound."""


def results_of(site: OpenSite) -> Sequence[int]:
    """The ids of the results of a call with an open axis, or with sizes among its elements. Raises Unsupported."""
    if (found := _evaluated(site)) is not None:
        return [found]
    if site.op == "Split" and (parts := _split_elements(site)):
        return parts
    if is_data_dependent(site.values, site.op, site.ids):
        return DATA_DEPENDENT[site.op][1](site)
    if not is_open(_dims(site)) and not _has_rule_for_sizes(site):
        return _plain(site)
    if site.op in VIEWS:
        return VIEWS[site.op](site)
    if site.op in INDEXED:
        return INDEXED[site.op](site)
    if site.op in COMBINE:
        return COMBINE[site.op](site)
    operator = site.values.operators[site.op]
    if Trait.REDUCTION in operator.traits:
        return reduction(site)
    positions = site.shape()[2:] if site.ids and site.ids[0] is not None else ()
    if site.op in WINDOWS and (is_open(positions) or _is_resized(site)):
        return WINDOWS[site.op](site)
    if site.op in NORMALISE and _is_normalised(site):
        return NORMALISE[site.op](site)
    if site.op in RECURRENCES and is_open(site.shape()[:1]):
        return RECURRENCES[site.op](site)
    if Trait.ELEMENTWISE in operator.traits:
        return [_elementwise(site)]
    return _by_kernel(_without_zeros(site))


def _dims(site: OpenSite) -> Numbers:
    return tuple(dim for id in site.ids if id is not None for dim in site.values.shape(id))


def _has_rule_for_sizes(site: OpenSite) -> bool:
    """Whether sizes are among the elements of an input that says a shape, a place or a count, or data say it."""
    parameters = {position for position, _ in site.values.operators[site.op].parameters}
    return (
        site.op in {"Range", "Split"}
        or is_said_by_data(site.values, site.op, site.ids)
        or any(id in site.values.elements for position, id in enumerate(site.ids) if position in parameters)
    )


def is_said_by_data(values: OpenValues, op: str, ids: Sequence[int | None]) -> bool:
    """Whether data say the places or counts of a call."""
    places = BY_DATA.get(op, ())
    return is_data_dependent(values, op, ids) or any(
        id is not None and values.known(id) is None for id in (ids[at] for at in places if at < len(ids))
    )


def _evaluated(site: OpenSite) -> int | None:
    """Elements that are sizes, computed now; None where that is not possible."""
    arrays = [None if id is None else site.values.known(id) for id in site.ids]
    absent = [array is None and id is not None for array, id in zip(arrays, site.ids, strict=True)]
    if site.outputs != 1 or any(absent) or is_open(_dims(site)):
        return None
    found = evaluated(site.op, site.attrs, arrays)
    if found is None:
        return None
    return site.values.holding(found, _dtype(site))


def _split_elements(site: OpenSite) -> Sequence[int]:
    """The parts of a vector that holds sizes; none where it is none, or data say how long they are."""
    values, array = site.values, site.values.elements.get(site.first)
    if array is None or array.ndim != 1 or is_data_dependent(values, site.op, site.ids):
        return ()
    sizes = site.ints(1, "split") or [-(-array.size // site.outputs)] * site.outputs
    ends = np.cumsum(sizes)[:-1]
    return [values.holding(part, site.kind(0).dtype) for part in np.split(array, ends)]


def _dtype(site: OpenSite) -> DType:
    """The element type of the result: operators that are not elementwise move or combine elements of their first."""
    operator = site.values.operators[site.op]
    if Trait.ELEMENTWISE not in operator.traits:
        return site.kind(0).dtype
    types = tuple(None if id is None else TensorType(site.values.graph.type(id).dtype, ()) for id in site.ids)
    return operator.infer(Node(site.op, site.ids, (0,), site.attrs), types)[0].dtype


def _plain(site: OpenSite) -> Sequence[int]:
    """A call of static shapes: sizes among its elements are computed at run time."""
    ids, attrs = _parameters(site)
    return site.values.node_of(site.op, ids, attrs, site.outputs)


def _parameters(site: OpenSite) -> tuple[list[int | None], dict[str, Attr]]:
    """The inputs and attributes of a node: what must be known when compiling is an attribute."""
    ids, attrs = [*site.ids], dict(site.attrs)
    for position, name in site.values.operators[site.op].parameters:
        if position < len(ids) and (id := ids[position]) is not None:
            numbers = site.values.graph.constants.get(id)
            if numbers is None:
                if id in site.values.elements:
                    raise site.refuse(f"input {name!r} depends on sizes")
                raise NotKnown(position, name)
            attrs[name] = plain(numbers)
            ids[position] = None
    return ids, attrs


def _is_resized(site: OpenSite) -> bool:
    """Whether a Resize gives sizes that are not known, of whatever it is given."""
    return site.op == "Resize" and any(id in site.values.elements for id in site.ids[2:])


def _is_normalised(site: OpenSite) -> bool:
    shape = site.shape()
    if site.op == "LayerNormalization":
        return is_open(shape[site.axis(len(shape), default=-1) :])
    return is_open(shape[2:])


def _elementwise(site: OpenSite) -> int:
    values = site.values
    ids, attrs = _parameters(site)
    shapes = [values.shape(id) for id in ids if id is not None]
    whole = broadcast(values, shapes)
    operands = [None if id is None else fitted(values, id, whole) for id in ids]
    found = values.node(site.op, operands, attrs)
    return values.settled(found, whole, padded=not _keeps_zero(site, shapes, whole))


def _keeps_zero(site: OpenSite, shapes: Sequence[Numbers], whole: Numbers) -> bool:
    """Whether the result is zero beyond its sizes because operands are."""

    def is_zero(shape: Numbers, axis: int) -> bool:
        return axis >= len(whole) - len(shape) and isinstance(shape[axis - len(whole)], Extent)

    axes = [axis for axis, dim in enumerate(whole) if isinstance(dim, Extent)]
    if site.op in ("Mul", "And"):
        return all(any(is_zero(shape, axis) for shape in shapes) for axis in axes)
    return all(is_zero(shape, axis) for shape in shapes for axis in axes) and _is_zero_at_zero(site)


def _is_zero_at_zero(site: OpenSite) -> bool:
    """Whether the function is 0 where all of its operands are, by its reference."""
    ids, attrs = _parameters(site)
    kinds = [None if id is None else site.values.graph.type(id).dtype.numpy for id in ids]
    arrays = tuple(None if kind is None else np.zeros((), kind) for kind in kinds)
    node = Node(site.op, tuple(ids), (0,), attrs)
    with np.errstate(all="ignore"):
        (found,) = site.values.operators[site.op].reference(node, arrays)[:1]
    return not np.asarray(found).any()


def _by_kernel(site: OpenSite) -> Sequence[int]:
    """The operator at capacity, as long as its kernel keeps open axes apart or adds them up."""
    values = site.values
    operator = values.operators[site.op]
    ids, attrs = _parameters(site)
    ids = fitting(site, ids)
    types = tuple(None if id is None else values.graph.type(id) for id in ids)
    node = Node(site.op, tuple(ids), tuple(range(site.outputs)), dict(attrs))
    outs = operator.infer(node, types)[: site.outputs]
    kernel = operator.define(node, types, outs)
    if not isinstance(kernel, Kernel):
        raise site.refuse("it has no rule for an open axis")
    shapes: list[list[Number]] = [list(out.dims) for out in outs]
    opened: set[tuple[int, int]] = set()
    for id, slot in zip(ids, slot_names(types), strict=True):
        if id is None:
            continue
        for axis, dim in enumerate(values.shape(id)):
            if not isinstance(dim, Extent):
                continue
            way = carried(kernel, slot, axis)
            if way.mixed or (way.summed and Trait.CONTRACTION not in operator.traits):
                raise site.refuse(f"elements along axis {axis} of input {ids.index(id)} meet, and there is no rule how")
            for output, place in way.outputs:
                at = (int(output[1:]), place)
                before = shapes[at[0]][place]
                shapes[at[0]][place] = same(values, before, dim) if at in opened else dim
                opened.add(at)
    found = values.node_of(site.op, ids, attrs, site.outputs)
    return [values.settled(id, tuple(shape)) for id, shape in zip(found, shapes, strict=True)]


ZERO_POINTS: Mapping[str, tuple[int, int]] = {"MatMulInteger": (2, 3), "QLinearMatMul": (2, 5)}
"""Products of elements less their zero points: where these are, of the first operand and of the second."""


def _without_zeros(site: OpenSite) -> OpenSite:
    """A product of bytes whose first operand is its zero point beyond the size of what is summed: it adds nothing."""
    places = [at for at in ZERO_POINTS.get(site.op, ()) if at < len(site.ids) and site.ids[at] is not None]
    size = site.shape()[-1] if len(places) == 2 else 0
    if not isinstance(size, Extent):
        return site
    values, x, shape = site.values, site.first, site.shape()
    zero = site.given(places[0])
    if values.graph.type(zero).elements != 1:
        raise site.refuse("the first operand has several zero points")
    real = values.node("Less", (iota(values, high(size)), values.scalar(size)))
    filled = values.node("Where", (real, x, values.reshape(zero, ())))
    values.shapes[filled] = shape
    return replace(site, ids=(filled, *site.ids[1:]))
