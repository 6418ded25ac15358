"""A pipeline on an accelerator and a CPU as artifacts and reports have it, and the proof that frames do not disturb."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import cycle, islice
from typing import Any, Protocol

import numpy as np

from compiler.accelerate.choosing import Chosen
from compiler.accelerate.parts import Assembled, OnAccelerator, OnCpu, Part, called_seconds
from compiler.accelerate.stages import Stages
from compiler.errors import InternalError
from compiler.quantize.samples import Sample

ROUNDS = 2
"""As many frames as may be in flight are proved so often."""


def stages_of(made: Assembled, carried: Mapping[str, str]) -> Stages:
    """The parts as stages, of which device 0 is the CPU and device 1 the accelerator."""
    inputs = {port["name"]: (port["name"], port["held"]) for port in made.assembly.inputs}
    held = {port["name"]: port["held"] for port in made.assembly.outputs}
    return Stages.of(
        [(int(isinstance(part, OnAccelerator)), part.inputs, part.outputs) for part in made.parts],
        [*dict.fromkeys(name for names in inputs.values() for name in names)],
        [(held[out], name) for out, into in carried.items() for name in dict.fromkeys(inputs[into])],
    )


def pipeline_of(objective: str, found: Chosen, stages: Stages) -> dict[str, Any]:
    """What the report tells, as `compiler.contract.PipelineReport`."""
    loads = found.loads
    period_s = loads.period_s if loads else None
    busy = loads.busy if loads and period_s else (None, None)
    sizes = _sizes(found.made.parts)
    return {
        "objective": objective,
        "period_s": period_s,
        "latency_s": loads.latency_s if loads else None,
        "cpu_busy": busy[0],
        "accelerator_busy": busy[1],
        "slots_bytes": sum(sizes[name] * slots for name, slots in stages.edges.items()),
        "curve": [asdict(one) for one in found.curve],
    }


def stream_json(
    document: Mapping[str, Any], stages: Stages, parts: Sequence[Part], carried: Mapping[str, str]
) -> dict[str, Any]:
    """What the manifest says of a pipeline for loaders and people, as of parts on cores (`compiler.pack.divided`).

    `calls` are the rows of `operators` in the placement that a part has, `seconds` what it takes, estimated, and `busy`
    the shares of the period that devices are at work.
    """
    rows = list(enumerate(document["operators"]))
    sizes = _sizes(parts)
    return {
        "scheduler": next(one["name"] for one in document["candidates"] if one["taken"]),
        "devices": [{"name": name, "target": name} for name in (document["beside"], document["accelerator"])],
        "runs": False,
        "frames": stages.frames,
        "predicted_s": document["totals"]["seconds"],
        "period_s": document["pipeline"]["period_s"],
        "busy": [document["pipeline"]["cpu_busy"], document["pipeline"]["accelerator_busy"]],
        "parts": [
            {
                "device": one.device,
                "calls": [at for at, row in rows if row["part"] == number],
                "seconds": called_seconds(part.compiled) if isinstance(part, OnAccelerator) else part.beside.seconds,
                "after": [{"part": after.part, "frames": after.frames} for after in one.after],
                "every": 1,
                "turns": [0],
            }
            for number, (one, part) in enumerate(zip(stages.stages, parts, strict=True))
        ],
        "edges": [{"name": name, "bytes": sizes[name], "slots": slots} for name, slots in stages.edges.items()],
        "carried": [{"output": out, "input": into} for out, into in carried.items()],
    }


def _sizes(parts: Sequence[Part]) -> dict[str, int]:
    """Bytes of what parts make."""
    found: dict[str, int] = {}
    for part in parts:
        if isinstance(part, OnCpu):
            found |= part.bytes_of
        else:
            stored = (math.prod(port.stored) for port in part.converted.outputs)
            found |= dict(zip(part.outputs, stored, strict=True))
    return found


class Streaming(Protocol):
    """An opened artifact that is a pipeline."""

    def run(self, inputs: Sample) -> dict[str, np.ndarray]:
        """One inference, its parts in turn."""
        ...

    def stream(self, frames: Any) -> Any:
        """Many inferences, with several in flight."""
        ...

    @property
    def manifest(self) -> Mapping[str, Any]:
        """With `stream`."""
        ...


def demand_same_in_flight(model: Streaming, samples: Sequence[Sample]) -> None:
    """Raises InternalError unless many frames in flight have the bits of the same frames one by one.

    Where states are carried the first frame has that of its sample, and each other one that of the frame before.
    """
    described = model.manifest["stream"]
    carried = {one["input"]: one["output"] for one in described["carried"]}
    frames = ROUNDS * int(described["frames"])
    given = list(islice(cycle(samples), frames))
    if carried:
        wanted = [model.run(given[0])]
        for at, sample in enumerate(given[1:], 1):
            wanted.append(model.run({**sample, **{into: wanted[-1][out] for into, out in carried.items()}}))
            given[at] = {name: array for name, array in sample.items() if name not in carried}
    else:
        wanted = list(islice(cycle([model.run(one) for one in samples]), frames))
    found = list(model.stream(given))
    for number, one in enumerate(found):
        for name, array in wanted[number].items():
            if one[name].tobytes() != array.tobytes():
                raise InternalError(f"output {name!r:.100} of frame {number} differs with others in flight")
    if len(found) != frames:
        raise InternalError(f"{len(found)} of {frames} frames in flight have ended")
