"""An output that is given piece by piece: where the model is cut, and the windows in which what lies behind it runs.

What lies behind the cut is local along an axis of the output (`compiler.steps.locality`). A window of the tensors that
cross the cut gives the same stretch of the output as the whole does, but for margins at those of its ends that are no
ends of the whole. All windows have one length, and begin at multiples of a step, so that one program runs each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from compiler.errors import OptionsError, Refusal, UnsupportedModel
from compiler.frontend import Limits, Loaded, load
from compiler.frontend.load import read_with_options
from compiler.frontend.portion import Portion, named_tensors
from compiler.frontend.reading.model import quoted
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Kernel
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import TensorType
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.pack.work import flops
from compiler.request import Request
from compiler.steps.locality import EXACT, Local, Margins, NotLocal, Track, local

MOST_CUTS = 8
"""Tensors that cross a cut."""
TRIED = 32
"""Cuts whose windows are computed, of those that cost least without margins."""
MOST_FIRST = 0.9
"""Of the work of the whole model, what the first piece may take: with more there is no point in pieces."""
SOONER = 2.0
"""What work until the first piece counts, beside work in all."""
LONG, FEW = 4096, 8
"""Positions of an axis from which on an output is worth pieces, and elements of each of them: sound."""
EXAMPLE = 8192
SMALL = 64
"""Elements of a constant that may follow from a length."""


@dataclass(frozen=True)
class Cut:
    """A tensor that crosses the cut, of which a window has the `type`.

    A step moves the window by `step` positions of `axis`; None: it is given whole.
    """

    name: str
    type: TensorType
    axis: int | None = None
    step: int = 0


@dataclass(frozen=True)
class Windows:
    """How an output is given piece by piece.

    axis      of the output, along which pieces follow each other
    length    positions of a piece, but for the last one
    step      positions of the output by which a step moves a window
    window    positions of the output that a window gives
    margins   those of them that are right only where the window ends where the whole does
    cuts      what crosses the cut
    inputs    those of `cuts` that are inputs of the model
    first     work until the first piece is there, over that of the whole model
    total     work of all pieces, over that of the whole model
    """

    output: str
    axis: int
    length: int
    step: int
    window: int
    margins: Margins
    cuts: tuple[Cut, ...]
    inputs: frozenset[str]
    first: float
    total: float

    @property
    def before(self) -> Portion | None:
        """What makes the tensors that cross the cut; None where all of them are inputs."""
        made = tuple(cut.name for cut in self.cuts if cut.name not in self.inputs)
        return Portion(made) if made else None

    @property
    def behind(self) -> Portion:
        """What makes a window of the output."""
        return Portion((self.output,), {cut.name: cut.type for cut in self.cuts})

    def to_json(self) -> dict[str, Any]:
        """As loaders read it."""
        cuts = [
            {"name": cut.name, "axis": cut.axis, "step": cut.step, "shape": list(cut.type.dims)} for cut in self.cuts
        ]
        own = {"output": self.output, "axis": self.axis, "length": self.length, "step": self.step}
        return {**own, "window": self.window, "margin": self.margins.before, "cuts": cuts}

    def __str__(self) -> str:
        names = ", ".join(quoted(cut.name) for cut in self.cuts)
        return (
            f"output {quoted(self.output)} can come in pieces of {self.length}, cut at {names}: a window computes "
            f"{self.window} positions, the first piece takes {self.first:.0%} of the whole model's work, all pieces "
            f"{self.total:.2f} times as much"
        )


@dataclass(frozen=True)
class _Region:
    """The nodes behind which all is local, by their place in the graph, and why the nodes before them are not."""

    graph: Graph
    output: int
    tracks: Mapping[int, Track]
    nodes: Mapping[int, Local]
    blocked: tuple[tuple[Node, str], ...]

    @property
    def refusal(self) -> UnsupportedModel:
        """Why the output does not come in pieces: the node that is nearest to it."""
        named = quoted(self.graph.values[self.output].name)
        if not self.blocked:
            fix = "leave chunks out"
            return UnsupportedModel(
                f"output {named} cannot come in pieces: no tensor of the model is before it", fix=fix
            )
        node, why = self.blocked[0]
        reason, fix = f"it {why}", "leave chunks out, or export the model without it, or with it before other layers"
        return UnsupportedModel(
            f"output {named} cannot come in pieces: node {quoted(node.source)} ({node.op}) {why}",
            fix=fix,
            refusals=(Refusal(reason, fix, node.source, node.op),),
        )


def asked(graph: Graph, shapes: OpenShapes | None, chunks: Mapping[str, int]) -> tuple[int, int, int]:
    """The output that `chunks` names, by id, its axis, and the length of a piece. Raises OptionsError for a misfit."""
    ((name, length),) = chunks.items()
    own = graph.outputs if shapes is None else graph.outputs[: len(shapes.outputs)]
    ids = {graph.values[id].name: id for id in own}
    if name not in ids:
        known = ", ".join(map(quoted, [*ids][:5]))
        raise OptionsError(f"chunks names {quoted(name)}, which is no output", fix=f"name one of {known}")
    dims = graph.type(ids[name]).dims
    most = max(dims, default=1)
    if most <= 1:
        raise OptionsError(
            f"chunks names output {quoted(name)}, no axis of which has two positions: its shape is {list(dims)}",
            fix="leave chunks out",
        )
    if length >= most:
        raise OptionsError(
            f"chunks asks for {length} positions of output {quoted(name)} at a time, and its longest axis has {most}",
            fix=f"ask for fewer, such as {json.dumps({'chunks': {name[:100]: -(-most // 8)}})}, or leave chunks out",
        )
    return ids[name], max(axis for axis, dim in enumerate(dims) if dim == most), length


def windows_of(
    graph: Graph, shapes: OpenShapes | None, names: Collection[str], chunks: Mapping[str, int]
) -> list[Windows]:
    """Ways to give an output in pieces, the one of least work first.

    names  the tensors of the model that may cross a cut

    Raises OptionsError for an output or a length that does not fit, UnsupportedModel naming the node that forbids it.
    """
    output, axis, length = asked(graph, shapes, chunks)
    region = _region(graph, output, axis)
    work = {place: _work(graph, node) for place, node in enumerate(graph.nodes)}
    found = _ranked(region, names, work, length)
    if not found:
        raise region.refusal
    fitting = [one for cut in found if (one := _windows(region, cut, length, work)) is not None]
    if not fitting:
        most = graph.type(output).dims[axis]
        raise OptionsError(
            f"chunks asks for {length} positions of output {quoted(graph.values[output].name)} at a time, and with "
            f"those that they depend on they are all of its {most}",
            fix="ask for fewer, compile for longer inputs, or leave chunks out",
        )
    worth = [one for one in fitting if one.first <= MOST_FIRST]
    if not worth:
        raise region.refusal
    return sorted(worth, key=lambda one: (round(SOONER * one.first + one.total, 2), len(one.cuts)))


def suggested(graph: Graph, shapes: OpenShapes | None, names: Collection[str]) -> Windows | None:
    """Pieces for an output that is long and has few elements at each position, such as sound; None for another."""
    own = graph.outputs if shapes is None else graph.outputs[: len(shapes.outputs)]
    for id in own:
        dims, name = graph.type(id).dims, graph.values[id].name
        most = max(dims, default=0)
        if most >= LONG and math.prod(dims) <= FEW * most:
            try:
                return windows_of(graph, shapes, names, {name: min(EXAMPLE, most // 4)})[0]
            except (OptionsError, UnsupportedModel):
                continue
    return None


def _region(graph: Graph, output: int, axis: int) -> _Region:
    tracks = {output: Track(axis, Fraction(1))}
    nodes: dict[int, Local] = {}
    blocked = []
    for place in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[place]
        own = {value: tracks[value] for value in node.outputs if value in tracks}
        if not own:
            continue
        try:
            found = local(graph, node, own)
            for value, track in found.tracks.items():
                if tracks.get(value, track) != track:
                    raise NotLocal("reads positions at another speed than what else reads them")
        except NotLocal as why:
            blocked.append((node, str(why)))
            continue
        tracks |= found.tracks
        nodes[place] = found
    return _Region(graph, output, tracks, nodes, tuple(blocked))


@dataclass(frozen=True)
class _Place:
    """A cut before the node at a place: what crosses it in windows, and whole, by id."""

    place: int
    timed: frozenset[int]
    whole: frozenset[int]


def _places(region: _Region) -> Iterator[_Place]:
    """The cuts that there are, the last one first."""
    timed, whole, made = {region.output}, set[int](), set[int]()
    for place in sorted(region.nodes, reverse=True):
        node, its = region.graph.nodes[place], region.nodes[place]
        made.update(node.outputs)
        timed = (timed | its.tracks.keys()) - {*node.outputs}
        whole |= its.whole
        if not whole & (timed | made):
            yield _Place(place, frozenset(timed), frozenset(whole))


def _ranked(region: _Region, names: Collection[str], work: Mapping[int, int], length: int) -> list[_Place]:
    """The cuts that tensors of the model can cross, those of least work first, margins left out."""
    graph, total = region.graph, region.graph.type(region.output).dims[region.tracks[region.output].axis]
    places = sorted(region.nodes, reverse=True)
    behind = dict(zip(places, accumulate(work[place] for place in places), strict=True))
    whole = _work_before(graph, frozenset({region.output}), work)

    def cost(cut: _Place) -> float:
        return (1 + SOONER) * (whole - behind[cut.place]) + behind[cut.place] * (1 + SOONER * length / total)

    def crosses(ids: frozenset[int]) -> bool:
        return len(ids) <= MOST_CUTS and all(graph.values[id].name in names for id in ids)

    return sorted((cut for cut in _places(region) if crosses(cut.timed | cut.whole)), key=cost)[:TRIED]


def _work_before(graph: Graph, wanted: frozenset[int], work: Mapping[int, int]) -> int:
    needed, found = set(wanted), 0
    for place in range(len(graph.nodes) - 1, -1, -1):
        if needed & {*graph.nodes[place].outputs}:
            needed.update(graph.nodes[place].used)
            found += work[place]
    return found


def _windows(region: _Region, cut: _Place, length: int, work: Mapping[int, int]) -> Windows | None:
    """The windows of a cut; None where one would be the whole."""
    graph, output = region.graph, region.output
    places = [place for place in sorted(region.nodes) if place >= cut.place]
    step = _step(region, places, cut)
    try:
        margins = _margins(region, places, cut.timed)
    except NotLocal:
        return None
    total = graph.type(output).dims[region.tracks[output].axis]
    skipped = (total - needed_positions(length, step, margins)) // step
    if skipped < 1:
        return None
    window = total - skipped * step
    cuts = []
    for id in (*sorted(cut.timed), *sorted(cut.whole)):
        type, track = graph.type(id), region.tracks.get(id) if id in cut.timed else None
        if track is None:
            cuts.append(Cut(graph.values[id].name, type))
            continue
        own = int(track.rate * step)
        dims = list(type.dims)
        dims[track.axis] -= skipped * own
        cuts.append(Cut(graph.values[id].name, TensorType(type.dtype, tuple(dims)), track.axis, own))
    whole = sum(work.values()) or 1
    before = _work_before(graph, cut.timed | cut.whole, work)
    one = sum(work[place] for place in places) * window / total
    given = frozenset(graph.values[id].name for id in cut.timed | cut.whole if id in graph.inputs)
    return Windows(
        graph.values[output].name,
        region.tracks[output].axis,
        length,
        step,
        window,
        margins,
        tuple(cuts),
        given,
        (before + one) / whole,
        (before + one * -(-total // length)) / whole,
    )


def needed_positions(length: int, step: int, margins: Margins) -> int:
    """Positions that a window has at least, so that one which begins at a multiple of a step holds any piece.

    It has two steps, and what is in its middle is free of margins, by which it is judged what nodes do there.
    """
    around = margins.before + margins.after
    return around + step - 1 + max(length, around + 1, step + 1)


def _step(region: _Region, places: Sequence[int], cut: _Place) -> int:
    """Positions of the output by which a window may be moved: whole positions of all tensors, and whole periods."""
    moduli: dict[int, int] = dict.fromkeys(cut.timed, 1)
    for place in places:
        for value, modulus in region.nodes[place].moduli.items():
            moduli[value] = math.lcm(moduli.get(value, 1), modulus)
    return math.lcm(*((modulus / region.tracks[value].rate).numerator for value, modulus in moduli.items()))


def _margins(region: _Region, places: Sequence[int], given: Collection[int]) -> Margins:
    known = dict.fromkeys(given, EXACT)
    for place in places:
        found = region.nodes[place].margins(known)
        known |= dict.fromkeys(region.graph.nodes[place].outputs, found)
    return known[region.output]


def requests_of_chunks(requests: Sequence[Request]) -> tuple[Windows, list[Request]]:
    """How a model gives its output in pieces, and what is compiled beside its bindings: before, and behind, a cut.

    The last binding has all sizes. Raises OptionsError and UnsupportedModel as `windows_of` does.
    """
    whole = requests[-1]
    loaded = load(whole.file, whole.options, OPERATORS)
    names = named_tensors(read_with_options(whole.file, whole.options, Limits(), None)[0])
    problem: UnsupportedModel | None = None
    for windows in windows_of(loaded.graph, loaded.open_shapes, names, whole.options.chunks):
        try:
            demand_fixed(whole, loaded, windows)
            behind = of_portion(whole, windows.behind)
            demand_same(windows, loaded.graph, load(behind.file, behind.options, OPERATORS, portion=behind.portion))
        except UnsupportedModel as error:
            problem = problem or error
            continue
        return windows, [*([of_portion(whole, windows.before)] if windows.before else []), behind]
    assert problem is not None, "there is a cut"
    raise problem


def of_portion(whole: Request, portion: Portion) -> Request:
    """The request for a portion of its model."""
    own = replace(whole.options, chunks={})
    if portion.inputs is not None:
        own = replace(own, dims={}, inputs={})
    return replace(whole, options=own, portion=portion, samples={} if portion.inputs is not None else whole.samples)


def demand_fixed(whole: Request, loaded: Loaded, windows: Windows) -> None:
    """Raises UnsupportedModel unless tensors that cross the cut have one size of each axis but that of windows."""
    graph, shapes = loaded.graph, loaded.open_shapes
    axes: dict[str, Sequence[int | None]] = {}
    if shapes is not None:
        axes |= {graph.values[id].name: own for id, own in zip(graph.inputs, shapes.inputs, strict=False)}
    if windows.before is not None:
        made = load(whole.file, whole.options, OPERATORS, portion=windows.before)
        if made.open_shapes is not None:
            axes |= dict(zip(windows.before.outputs, made.open_shapes.outputs, strict=True))
    for cut in windows.cuts:
        open_axes = [axis for axis, number in enumerate(axes.get(cut.name, ())) if number is not None]
        if [axis for axis in open_axes if axis != cut.axis]:
            raise UnsupportedModel(
                f"output {quoted(windows.output)} cannot come in pieces: {quoted(cut.name)}, on which each depends, "
                "has a size that is only known while running",
                fix="give that dimension one size, or leave chunks out",
            )


def demand_same(windows: Windows, whole_graph: Graph, loaded: Loaded) -> None:
    """Raises UnsupportedModel where the program of a window does not do there what the whole does.

    loaded  the portion behind the cut, for a window
    """
    graph = loaded.graph
    (output,) = graph.outputs[:1]
    if loaded.open_shapes is not None or loaded.border.random:
        why = "draws random numbers" if loaded.border.random else "has sizes that data decide"
        raise _otherwise(windows, f"what is behind the cut {why}")
    dims = graph.type(output).dims
    region = _region(graph, output, windows.axis)
    ids = {graph.values[id].name: id for id in graph.inputs}
    timed = frozenset(ids[cut.name] for cut in windows.cuts if cut.axis is not None)
    whole = frozenset(ids[cut.name] for cut in windows.cuts if cut.axis is None)
    fixed = _independent(graph, timed)
    wanted = [place for place, node in enumerate(graph.nodes) if not fixed.issuperset(node.outputs)]
    read = {id for place in wanted if place in region.nodes for id in region.nodes[place].whole}
    if not {*wanted} <= region.nodes.keys() or not read <= fixed | whole or len(dims) <= windows.axis:
        raise region.refusal
    place = _Place(0, timed, whole)
    step = _step(region, wanted, place)
    moved = {id: (track.axis, int(track.rate * windows.step)) for id, track in region.tracks.items() if id in timed}
    if windows.step % step or dims[windows.axis] != windows.window:
        raise _otherwise(windows, f"a window of it has {list(dims)}")
    for cut in windows.cuts:
        if cut.axis is not None and moved.get(ids[cut.name]) != (cut.axis, cut.step):
            raise _otherwise(windows, f"{quoted(cut.name)} moves at another speed in a window")
    try:
        margins = _margins(region, wanted, timed)
    except NotLocal:
        raise region.refusal from None
    if margins != windows.margins:
        raise _otherwise(windows, "a window reads to another extent than the whole")
    numbers = {_small(array) for array in whole_graph.constants.values()}
    if not numbers.issuperset(_small(array) for array in graph.constants.values()):
        raise _otherwise(windows, "it computes with a number that depends on the length")


def _small(array: np.ndarray) -> bytes:
    """A constant of few elements, as bytes; empty for others."""
    return array.dtype.str.encode() + array.tobytes() if array.size <= SMALL else b""


def _otherwise(windows: Windows, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"output {quoted(windows.output)} cannot come in pieces: {why}",
        fix="export the model with sizes that follow from those of its inputs, or leave chunks out",
    )


def _independent(graph: Graph, timed: frozenset[int]) -> frozenset[int]:
    """Values that no window changes."""
    changed = set(timed)
    for node in graph.nodes:
        if changed & {*node.used}:
            changed.update(node.outputs)
    return frozenset(graph.values) - changed


def _work(graph: Graph, node: Node) -> int:
    """Operations of a node as it is defined; for what is no loop nest the elements that it touches."""
    types = tuple(None if value is None else graph.type(value) for value in node.inputs)
    results = tuple(graph.type(value) for value in node.outputs)
    try:
        kernel = OPERATORS[node.op].define(node, types, results)
    except (Unsupported, KeyError):
        kernel = None
    touched = sum(graph.type(value).elements for value in (*node.used, *node.outputs))
    return touched + (flops(kernel) or 0 if isinstance(kernel, Kernel) else 0)
