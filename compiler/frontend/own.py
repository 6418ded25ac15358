"""What the walk does itself for strings, random numbers, trees and regions, by own operators, and ZipMap at last."""

from __future__ import annotations

from typing import Protocol

from compiler.frontend.control.unroll import Walk
from compiler.frontend.expansions.composed import OWN_REGIONS, OWN_SAMPLES
from compiler.frontend.open.combine import recurrence
from compiler.frontend.open.extent import Extent, is_open
from compiler.frontend.open.places import capacity, gathered, linear
from compiler.frontend.open.site import OpenSite, capacities
from compiler.frontend.open.values import as_number
from compiler.frontend.opsets.legalise import plain_attr
from compiler.frontend.reading.model import Call, Model, quoted
from compiler.frontend.scope import Scope
from compiler.ir.border import RANDOM_STATE
from compiler.ir.graph import Attr
from compiler.ir.tensor import DType, TensorType
from compiler.ops.forest import FOREST
from compiler.ops.operator import Unsupported
from compiler.ops.recurrent import CODED
from compiler.ops.regions import LARGEST, SAMPLED

Ids = tuple[int | None, ...]
ZIP_MAP = "ai.onnx.ml::ZipMap"
MOST_NAMED = 8
"""Of classes, or of elements, that a notice names."""


class Owning(Walk, Protocol):
    """What these ask of the walk over the model."""

    model: Model
    notices: list[str]
    own_inputs: int
    state: int | None
    streams: int


def number_of(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """The numbers of strings, in a definition of the compiler's own."""
    (id,) = ids
    if scope.named or id is None or id not in walk.graph.texts:
        raise Unsupported("ONNX has no such operator", "export without it")
    known = walk.graph.constants.get(id)
    if known is None:
        number = walk.values.node("Identity", (id,))
        if id in walk.values.shapes:
            walk.values.shapes[number] = walk.values.shapes[id]
    else:
        number = walk.graph.constant(known.copy(), "")
    walk.graph.texts.discard(number)
    return (number,)


def random_bits(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Random words from a stream that no other node draws from, in a definition of the compiler's own."""
    if scope.named:
        raise Unsupported("ONNX has no such operator", "export without it")
    if any(one.name == RANDOM_STATE for one in walk.model.body.inputs):
        raise Unsupported(f"an input is called {RANDOM_STATE!r}, as its state is", "rename that input")
    if walk.state is None:
        walk.state = walk.graph.input_at(walk.own_inputs, TensorType(DType.I64, (2,)), RANDOM_STATE)
    attrs = {name: plain_attr(name, value) for name, value in call.attrs.items()}
    stream, walk.streams = walk.streams, walk.streams + 1
    attrs["stream"] = stream
    if not ids or ids[0] is None:
        return (walk.values.node("RandomBits", (walk.state,), attrs),)
    return (_open_bits(walk, walk.state, attrs, ids[0]),)


def _open_bits(walk: Owning, state: int, attrs: dict[str, Attr], wanted: int) -> int:
    """Words in an open shape: each the one of its place among those that are real, whatever the capacity is."""
    values = walk.values
    known = values.known(wanted)
    if known is None:
        raise Unsupported("the shape of what it draws is computed", "bind the dimensions to numbers")
    shape = tuple(as_number(item) for item in known.reshape(-1))
    if not is_open(shape[1:]):
        return values.settled(values.node("RandomBits", (state,), {**attrs, "shape": capacities(shape)}), shape)
    line = values.node("RandomBits", (state,), {**attrs, "shape": (capacity(shape),)})
    found = gathered(values, line, values.reshape(linear(values, shape), (capacity(shape),)), 0)
    return values.settled(values.reshape(found, capacities(shape)), shape)


def forest(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Trees over samples of which there may be an open number, in a definition of the compiler's own."""
    if scope.named:
        raise Unsupported("ONNX has no such operator", "export without it")
    attrs = {name: plain_attr(name, value) for name, value in call.attrs.items()}
    values, x = walk.values, ids[0]
    assert x is not None
    rows = values.shape(x)[0]
    if not isinstance(rows, Extent):
        return (values.node(FOREST, ids, attrs),)
    found = values.node(FOREST, (*ids, values.scalar(rows)), attrs)
    return (values.settled(found, (rows, values.graph.type(found).dims[1]), padded=False),)


def largest_of_regions(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Rectangles within images, whose number and size may be open, in a definition of the compiler's own."""
    if scope.named:
        raise Unsupported("ONNX has no such operator", "export without it")
    site = OpenSite(walk.values, LARGEST, ids, {}, 1)
    shape = (site.shape(1)[0], site.shape()[1], site.shape(2)[1], site.shape(3)[1])
    found = walk.values.node(LARGEST, ids)
    return (walk.values.settled(found, shape) if is_open(shape) else found,)


def samples_of_regions(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Samples of bins within images, whose number and size may be open, in a definition of the compiler's own."""
    if scope.named:
        raise Unsupported("ONNX has no such operator", "export without it")
    site = OpenSite(walk.values, SAMPLED, ids, {}, 1)
    shape = (site.shape(1)[0], site.shape()[1], site.shape(2)[1], site.shape(3)[1])
    found = walk.values.node(SAMPLED, ids, {name: plain_attr(name, value) for name, value in call.attrs.items()})
    return (walk.values.settled(found, shape) if is_open(shape) else found,)


def coded_lstm(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """A layer over bytes, of which the steps may be an open number, in a definition of the compiler's own."""
    if scope.named:
        raise Unsupported("ONNX has no such operator", "export without it")
    attrs = {name: plain_attr(name, value) for name, value in call.attrs.items()}
    count = max(position + 1 for position, name in enumerate(call.outputs) if name)
    return tuple(recurrence(OpenSite(walk.values, CODED, ids, attrs, count)))


def zip_map(walk: Owning, call: Call, ids: Ids, scope: Scope) -> Ids:
    """ZipMap at the end of a model: the scores as they are, of which a notice says whose each column is."""
    (name,) = call.outputs
    body = walk.model.body
    if scope.parent or name not in body.outputs or any(name in other.reads for other in body.calls):
        raise Unsupported("it makes maps, which another node reads", "read the scores that it is made of")
    labels = [
        label
        for kind in ("strings", "int64s")
        if isinstance(found := call.attrs.get(f"classlabels_{kind}", ()), tuple)
        for label in found
    ]
    shown = ", ".join(quoted(str(label)) for label in labels[:MOST_NAMED])
    more = f" and {len(labels) - MOST_NAMED} others" if len(labels) > MOST_NAMED else ""
    walk.notices.append(
        f"output {quoted(name)} is the array of scores itself, not a list of maps: its columns are {shown}{more}"
    )
    return ids[:1]


REGIONS = {OWN_REGIONS: largest_of_regions, OWN_SAMPLES: samples_of_regions}
