"""Which of several placements on an accelerator and a CPU is taken: the one that is estimated to be fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from compiler.accelerate.chips import Chip
from compiler.accelerate.cores import modelled_seconds
from compiler.accelerate.dividing import Divisible
from compiler.accelerate.parts import (
    Assembled,
    Assembly,
    OnAccelerator,
    Placed,
    assembled,
    called_seconds,
    placements,
)
from compiler.contract.devices import HOST
from compiler.devices.kind import CompilePart
from compiler.errors import UnsupportedModel
from compiler.quantize.network import Network
from compiler.quantize.samples import Sample

ACCELERATOR = "the accelerator, and the CPU for what it does not carry out"
DIVIDED = "the same, and the CPU for segments that are estimated to be faster on it"
CPU = "the whole model on the CPU, as it was given"
CPU_INT8 = "the whole model on the CPU, quantised"


def alone_on_cpu(network: Network) -> Placed:
    """All nodes as one part of the CPU's. Raises UnsupportedModel where a shape is not known."""
    divisible = Divisible(network)
    left = {node.output[0]: "the whole model runs on the CPU" for node in divisible.placed}
    segments = tuple(divisible.segments(left))
    return Placed(divisible, segments, (None,) * len(segments), left)


def estimated_seconds(placed: Placed, core: str) -> float | None:
    """Of an inference, parts of the CPU's as modelled for a core, nothing compiled; None where one has no model."""
    assembly = Assembly(placed)
    total = 0.0
    for segment, made in zip(placed.segments, placed.made, strict=True):
        taken = modelled_seconds(assembly.model_of(segment), core) if made is None else called_seconds(made[1])
        if taken is None:
            return None
        total += taken
    return total


def priced_seconds(made: Assembled) -> float | None:
    """Of an inference, parts of the CPU's as their programs were measured on this machine; None where one was not."""
    each = [
        called_seconds(part.compiled) if isinstance(part, OnAccelerator) else part.beside.seconds for part in made.parts
    ]
    return sum(each) if all(each) else None


@dataclass(frozen=True)
class Asked:
    """A model for an accelerator and the CPU `core` beside it: HOST, or one that is modelled.

    `given` is the model as it was given, `network` the quantised one, with the ranges of its tensors; `unquantised`
    says why there is none.
    """

    given: Network
    network: Network
    ranges: Mapping[str, tuple[float, float]]
    chip: Chip
    core: str
    unquantised: str = ""


def proposed(asked: Asked) -> tuple[dict[str, Placed], dict[str, str]]:
    """Placements by what they are, those that use the accelerator first, and why others are not there."""
    found: dict[str, Placed] = {}
    refused: dict[str, str] = {}
    try:
        if asked.unquantised:
            raise UnsupportedModel(asked.unquantised)
        on_both = placements(asked.network, asked.ranges, asked.chip, asked.core)
        found[ACCELERATOR] = on_both[0]
        for number, one in enumerate(on_both[1:], 1):
            found[DIVIDED if number == 1 else f"{DIVIDED}, {number} times"] = one
    except UnsupportedModel as no:
        refused[ACCELERATOR] = no.message
    alone = {CPU: asked.given}
    if asked.network is not asked.given:
        alone[CPU_INT8] = asked.network
    for name, network in alone.items():
        try:
            found[name] = alone_on_cpu(network)
        except UnsupportedModel as no:
            refused[name] = no.message
    return found, refused


@contextmanager
def chosen(
    asked: Asked, sample: Sample, compile_part: CompilePart, tuning_budget_s: float
) -> Iterator[tuple[Assembled, list[dict[str, Any]]]]:
    """The fastest of `proposed`, its parts compiled, and a row of each of them (`compiler.contract.PlacedCandidate`).

    On a core that is modelled the fastest is found before anything is compiled; on this machine, HOST, each is compiled
    and measured within its share of the budget. Where no time is known it is the first that can be compiled.
    Raises UnsupportedModel where there is none.
    """
    (found, refused), core = proposed(asked), asked.core
    with ExitStack() as opened:
        budget = tuning_budget_s / max(len(found), 1) if core == HOST else tuning_budget_s
        made: dict[str, Assembled] = {}
        seconds: dict[str, float | None] = {}
        open_one = partial(assembled, sample=sample, compile_part=compile_part, tuning_budget_s=budget, core=core)
        for name, placed in found.items():
            try:
                if core == HOST:
                    made[name] = opened.enter_context(open_one(placed))
                    seconds[name] = priced_seconds(made[name])
                else:
                    seconds[name] = estimated_seconds(placed, core)
            except UnsupportedModel as no:
                refused[name] = no.message
        if not seconds:
            name, why = next(iter(refused.items()))
            raise UnsupportedModel(f"{name}: {why}", fix="compile it for one device, and look at its refusals")
        known = {name: one for name, one in seconds.items() if one is not None}
        best = min(known, key=lambda name: known[name]) if known else next(iter(seconds))
        rows = [
            {
                "name": name,
                "seconds": seconds.get(name),
                "why": refused.get(name, "" if name in known else "a loop or a branch has no model"),
                "taken": name == best,
            }
            for name in (*found, *(name for name in refused if name not in found))
        ]
        yield made[best] if best in made else opened.enter_context(open_one(found[best])), rows
