"""States that a job carries from inference to inference: outputs of the model that are inputs of the next one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import islice

from compiler.contract import CompileOptions
from compiler.contract.options import CARRY_AUTO
from compiler.errors import OptionsError
from compiler.ir.border import Border
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import TensorType
from compiler.steps.states.names import suggested_pairs

Pair = tuple[str, str]
"""An output and the input that it is in the next inference."""
Types = Mapping[str, object]
"""By name in the model what a tensor is, type and shape; None where that is not known, and then it fits all."""

SHOWN = 6
"""Names that a fix lists."""
COMPARED = 1000
"""Names of a model that are compared with a wrong one."""
CHARACTERS = 100
"""Of a name, which are compared and shown."""


def demand_pairs(pairs: Collection[Pair], outputs: Types, inputs: Types, unmade: Collection[str] = ()) -> None:
    """Raises OptionsError unless each is an output and an input of its own, of one type and shape.

    `unmade` are outputs that no state can be: they are inputs of the model, as they are given.
    """
    for out, into in pairs:
        for name, kind, names in ((out, "output", outputs), (into, "input", inputs)):
            if name not in names:
                turned = out in inputs and into in outputs
                raise OptionsError(
                    f"carry names {name!r:.100}, which is no {kind} of the model",
                    fix=f"name the output first: {into!r:.100} is input {out!r:.100} of the next inference"
                    if turned
                    else f"{kind}s of the model are {_nearest(name, names)}",
                )
        if out in unmade:
            raise OptionsError(
                f"carry names output {out!r:.100}, which is an input as it is", fix="give that input to each inference"
            )
        if None not in (outputs[out], inputs[into]) and outputs[out] != inputs[into]:
            like = [name for name, one in outputs.items() if name not in unmade and one == inputs[into]]
            fix = "no output of the model is like this input: give it to each inference"
            if like:
                fix = f"outputs like this input are {_nearest(out, like)}"
            elif _is_longer(outputs[out], inputs[into]):
                fix = "a cache that grows is given to each inference; export one that keeps its size (docs/options.md)"
            raise OptionsError(
                f"output {out!r:.100} cannot be input {into!r:.100} of the next inference: their types or shapes "
                f"differ, {outputs[out]} and {inputs[into]}",
                fix=fix,
            )
    fed: dict[str, str] = {}
    for out, into in pairs:
        if into in fed:
            raise OptionsError(
                f"carry gives one input two states: {into!r:.100} is to be outputs {fed[into]!r:.100} and {out!r:.100}",
                fix="name each input once",
            )
        fed[into] = out


def _is_longer(made: object, read: object) -> bool:
    """Whether one tensor is another with more along one axis."""
    if not isinstance(made, TensorType) or not isinstance(read, TensorType) or made.rank != read.rank:
        return False
    more = [one - other for one, other in zip(made.dims, read.dims, strict=True) if one != other]
    return made.dtype is read.dtype and len(more) == 1 and more[0] > 0


def corrected_pairs(
    pairs: Collection[Pair], outputs: Types, inputs: Types, unmade: Collection[str] = ()
) -> dict[str, str]:
    """Those of the pairs that can be carried; of a name that is not there the nearest one instead, if there is any."""
    kept: dict[str, str] = {}
    for out, into in sorted(pairs, key=lambda pair: (pair[0] not in outputs, pair[1] not in inputs)):
        near = (into, out) if out in inputs and into in outputs else (_like(out, outputs), _like(into, inputs))
        try:
            demand_pairs([*kept.items(), near], outputs, inputs, unmade)
        except OptionsError:
            continue
        kept.setdefault(*near)
    return dict(sorted(kept.items()))


def ports_of(graph: Graph) -> tuple[Types, Types]:
    """The types of a graph's outputs and inputs, by name in the model, in order."""
    outputs, inputs = (
        {str(graph.values[id].name): graph.values[id].type for id in ids} for ids in (graph.outputs, graph.inputs)
    )
    return outputs, inputs


def carried_positions(graph: Graph, carried: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """The positions of outputs, and of the inputs that they are in the next frame. Raises OptionsError."""
    outputs, inputs = ports_of(graph)
    pairs = sorted(carried.items())
    demand_pairs(pairs, outputs, inputs)
    return tuple(([*outputs].index(out), [*inputs].index(into)) for out, into in pairs)


def carried_by(graph: Graph, shapes: OpenShapes | None, border: Border, options: CompileOptions) -> Mapping[str, str]:
    """The states that a program for one device carries: those named, or those that the names of the model say.

    Raises OptionsError for what no state can be, and where names are to say states and say none.
    """
    carried = options.named_states
    demand_pairs(sorted(carried.items()), *ports_of(graph))
    if options.carry and _varies(shapes):
        raise OptionsError(
            "carry is for models whose sizes are known before they run, and data or inputs say sizes of this one",
            fix="give each dimension one value (dims), or give the states to each inference",
        )
    if options.carry == CARRY_AUTO:
        carried = suggested_states(graph, shapes, border)
        if not carried:
            raise OptionsError(
                "no names of outputs say which inputs they are in the next inference",
                fix='name them, such as {"carry": {"next": "h"}}, or leave carry out',
            )
    if texts := sorted({*carried.values()} & border.inputs):
        raise OptionsError(f"carry names input {texts[0]!r:.100}, which is strings", fix="give it to each inference")
    return {**carried, **border.growth.states, **border.scales} if border.growth else {**carried, **border.scales}


@dataclass(frozen=True)
class BoundStates:
    """The states of a model at one of several bindings, which `binding` names.

    pairs  by name of an output the input that it is in the next run
    types  by name of such an input what it is
    """

    binding: str
    pairs: Mapping[str, str]
    types: Mapping[str, TensorType]

    @staticmethod
    def of(graph: Graph, shapes: OpenShapes | None, border: Border, options: CompileOptions) -> BoundStates:
        """Those of options for a single binding. Raises OptionsError as `carried_by` does."""
        pairs = carried_by(graph, shapes, border, options)
        types = {str(graph.values[id].name): graph.values[id].type for id in graph.inputs}
        binding = ", ".join(f"{name}={size}" for name, size in options.binding.items())
        return BoundStates(binding, pairs, {into: types[into] for into in pairs.values()})


def demand_shared(each: Sequence[BoundStates]) -> None:
    """Raises OptionsError unless all bindings carry the same states, each of one type and shape."""
    first, *others = each
    for other in others:
        for out, into in sorted({*first.pairs.items()} & {*other.pairs.items()}):
            if first.types[into] != other.types[into]:
                raise OptionsError(
                    f"input {into!r:.100} cannot be a state of all bindings: it is {first.types[into]} at "
                    f"{first.binding}, and {other.types[into]} at {other.binding}",
                    fix=f"leave output {out!r:.100} out of carry, bind dimensions so that states keep their shapes "
                    "(a cache at its capacity), or compile an artifact for each binding",
                )
        for out, into in sorted({*first.pairs.items()} ^ {*other.pairs.items()}):
            has, lacks = (first, other) if first.pairs.get(out) == into else (other, first)
            raise OptionsError(
                f"names and shapes say that output {out!r:.100} is input {into!r:.100} of the next inference at "
                f"{has.binding}, and not at {lacks.binding}",
                fix='name the states that all bindings have, such as {"carry": {"next": "h"}}',
            )


def suggested_states(graph: Graph, shapes: OpenShapes | None, border: Border) -> dict[str, str]:
    """The states that the names of the model say, of those that a program for one device can carry."""
    if _varies(shapes):
        return {}
    outputs, inputs = ports_of(graph)
    found = suggested_pairs(outputs, {name: type for name, type in inputs.items() if name not in border.inputs})
    return {**found, **border.growth.states} if border.growth else found


def _varies(shapes: OpenShapes | None) -> bool:
    """Whether sizes of inputs or outputs are only known while running, or a run may find that it means nothing."""
    return shapes is not None and (bool(shapes.dimensions or shapes.limits) or any(map(any, _open(shapes))))


def _open(shapes: OpenShapes) -> Iterator[list[bool]]:
    return ([number is not None for number in axes] for axes in (*shapes.inputs, *shapes.outputs))


def _nearest(name: str, names: Iterable[str]) -> str:
    """The names that are most like one, the nearest first."""
    given = [*names]

    def likeness(other: str) -> float:
        return SequenceMatcher(None, other[:CHARACTERS], name[:CHARACTERS]).ratio()

    near = sorted(given[:COMPARED], key=likeness, reverse=True)[:SHOWN]
    return ", ".join(f"{one!r:.{CHARACTERS}}" for one in near) + (" and others" if len(given) > SHOWN else "")


def _like(name: str, names: Types) -> str:
    """The name if it is there, or the nearest one if any is like it; else the name."""
    if name in names:
        return name
    cut = {one[:CHARACTERS]: one for one in islice(names, COMPARED)}
    return next((cut[one] for one in get_close_matches(name[:CHARACTERS], cut, n=1)), name)
