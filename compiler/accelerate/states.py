"""States that a model hands from frame to frame: an output that is an input of the next one.

A frame's readers of a state wait for what makes it in the frame before, so that a frame follows another one no faster
than a state gets from where it is read to where it is made. That bound is highest where the way goes from device to
device, which is why placements are also tried with all of it on one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx import TensorProto, ValueInfoProto

from compiler.accelerate.dividing import Divisible, Segment
from compiler.quantize.network import Network
from compiler.schedule.solvers.recurrence import maximum_cycle_mean
from compiler.steps.states.carried import demand_pairs


def demand_carried(network: Network, carried: Mapping[str, str]) -> None:
    """Raises OptionsError unless each is an output of the model and an input of its own, of one type and shape."""
    divisible = Divisible(network)
    named = {*carried, *carried.values()}

    def typed(names: Iterable[str]) -> dict[str, str | None]:
        """What other tensors are does not matter, and need not be known."""
        found = {name: divisible.type_of(name) if name in named else divisible.types.get(name) for name in names}
        return {name: _said(one) if one else None for name, one in found.items()}

    outputs, inputs = typed(one.name for one in network.proto.graph.output), typed(network.inputs)
    unmade = [out for out in outputs if divisible.root(out) in inputs]
    demand_pairs(sorted(carried.items()), outputs, inputs, unmade)


def _said(value: ValueInfoProto) -> str:
    """Its type and shape."""
    tensor = value.type.tensor_type
    return f"{TensorProto.DataType.Name(tensor.elem_type).lower()}{[dim.dim_value for dim in tensor.shape.dim]}"


def recurrence_s(
    segments: Sequence[Segment], seconds: Sequence[float], divisible: Divisible, carried: Mapping[str, str]
) -> float:
    """Least seconds from one frame to the next that states permit, where segments take so long; 0 without any.

    The maximum cycle mean of the ways from the reading of each state to the making of each.
    """
    ways = [[_way(segments, seconds, into, {out, divisible.root(out)}) for out in carried] for into in carried.values()]
    return maximum_cycle_mean(ways)


def _way(segments: Sequence[Segment], seconds: Sequence[float], into: str, made: set[str]) -> float | None:
    """The longest way from a segment that reads an input to one that makes a tensor, both with it; None: there is none.

    `made` are the tensor's names.
    """
    longest: dict[int, float] = {}
    for at, one in enumerate(segments):
        before = [longest[other] for other in longest if {*segments[other].outputs} & {*one.inputs}]
        if before or into in one.inputs:
            longest[at] = seconds[at] + max(before, default=0.0)
    return max(
        (longest[at] for at, one in enumerate(segments) if at in longest and made & {*one.outputs}), default=None
    )
