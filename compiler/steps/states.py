"""States that a job carries from inference to inference: outputs of the model that are inputs of the next one."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.errors import OptionsError
from compiler.ir.graph import Graph


def demand_pairs(carried: Mapping[str, str], outputs: Mapping[str, object], inputs: Mapping[str, object]) -> None:
    """Raises OptionsError unless each is an output and an input of its own, of one type and shape.

    `outputs` and `inputs` are types with shapes, by name in the model.
    """
    for out, into in carried.items():
        for name, kind, names in ((out, "output", outputs), (into, "input", inputs)):
            if name not in names:
                raise OptionsError(
                    f"carry names {name!r:.100}, which is no {kind} of the model", fix=f"those are: {', '.join(names)}"
                )
        if outputs[out] != inputs[into]:
            raise OptionsError(
                f"output {out!r:.100} cannot be input {into!r:.100} of the next frame: their types or shapes differ",
                fix="name an output and an input that are alike",
            )
    if len({*carried.values()}) < len(carried):
        raise OptionsError("carry gives one input two states", fix="name each input once")


def carried_positions(graph: Graph, carried: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """The positions of outputs, and of the inputs that they are in the next frame. Raises OptionsError."""
    outputs, inputs = (
        {str(graph.values[id].name): graph.values[id].type for id in ids} for ids in (graph.outputs, graph.inputs)
    )
    demand_pairs(carried, outputs, inputs)
    return tuple(([*outputs].index(out), [*inputs].index(into)) for out, into in sorted(carried.items()))
