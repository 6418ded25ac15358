"""States that a model hands from frame to frame: an output that is an input of the next one.

A frame's readers of a state wait for what makes it in the frame before, so that a frame follows another one no faster
than a state gets from where it is read to where it is made. That bound is highest where the way goes from device to
device, which is why placements are also tried with all of it on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.accelerate.dividing import Divisible, Segment
from compiler.errors import OptionsError
from compiler.quantize.network import Network
from compiler.schedule.solvers.recurrence import maximum_cycle_mean


def demand_carried(network: Network, carried: Mapping[str, str]) -> None:
    """Raises OptionsError unless each is an output of the model and an input of its own, of one type and shape."""
    divisible = Divisible(network)
    outputs = [one.name for one in network.proto.graph.output]
    for out, into in carried.items():
        for name, kind, names in ((out, "output", outputs), (into, "input", network.inputs)):
            if name not in names:
                raise OptionsError(
                    f"carry names {name!r:.100}, which is no {kind} of the model", fix=f"those are: {', '.join(names)}"
                )
        if divisible.root(out) in network.inputs:
            raise OptionsError(
                f"carry names output {out!r:.100}, which is an input as it is", fix="give that input to each inference"
            )
        made, read = (divisible.type_of(name).type for name in (out, into))
        if made != read:
            raise OptionsError(
                f"output {out!r:.100} cannot be input {into!r:.100} of the next frame: their types or shapes differ",
                fix="name an output and an input that are alike",
            )
    if len({*carried.values()}) < len(carried):
        raise OptionsError("carry gives one input two states", fix="name each input once")


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
