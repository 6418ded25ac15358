"""What the parts of a model become: TFLite and a command stream on the accelerator, models of their own on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from compiler.accelerate.beside import Beside, compiled_beside
from compiler.accelerate.chips import Chip
from compiler.accelerate.cores import CORES, modelled_seconds
from compiler.accelerate.dividing import Divisible, Segment, on_cpu
from compiler.accelerate.formats import run_of, written
from compiler.accelerate.interpreter import PartRun, entered, part_run, program, step, taken
from compiler.accelerate.tables import operators_of
from compiler.accelerate.tflite.convert import Converted, Converter, Port, Scale, schemes_of
from compiler.accelerate.vela import Compiled
from compiler.devices.kind import CompilePart
from compiler.errors import InternalError, Refusal, UnsupportedModel
from compiler.quantize.network import Network, named
from compiler.quantize.samples import Sample

HANDOVER_S = 1e-5
"""A call of the accelerator, assumed: 5000 cycles of a CPU at 500 MHz."""
MOST_MACS = MappingProxyType({CORES[0]: 1.2e10, CORES[1]: 7.7e10})
"""Multiplications of bytes in a second that no core makes more of: 8 in each of 1.4e9 cycles, 32 in each of 2.4e9."""
IDLE = "it does nothing, between operators that are left to the CPU"


@dataclass(frozen=True)
class OnAccelerator:
    """A part of the accelerator's; `inputs` and `outputs` are what its bytes are called between parts."""

    segment: Segment
    converted: Converted
    compiled: Compiled
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class OnCpu:
    """A part of the CPU's as a model, `inputs` and `outputs` are its own; `beside` is what was made of it.

    `bytes_of` are those of each output.
    """

    segment: Segment
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    beside: Beside
    bytes_in: int
    bytes_of: Mapping[str, int]

    @property
    def bytes_out(self) -> int:
        """That it gives, to others and to the caller."""
        return sum(self.bytes_of.values())


Part = OnAccelerator | OnCpu


@dataclass(frozen=True)
class Placed:
    """Segments in order, what became of those of the accelerator's, and why nodes are left, by their first result."""

    divisible: Divisible
    segments: tuple[Segment, ...]
    made: tuple[tuple[Converted, Compiled] | None, ...]
    left: Mapping[str, str]

    @property
    def uses_accelerator(self) -> bool:
        """Whether any segment is the accelerator's."""
        return any(self.made)


def place(network: Network, ranges: Mapping[str, tuple[float, float]], chip: Chip) -> Placed:
    """The last of `placements`, beside the first of CORES."""
    return placements(Placing(network, ranges, chip, CORES[0]))[-1]


def placements(placing: Placing) -> list[Placed]:
    """Gives the accelerator all that it carries out, then what is worth it less and less.

    The first has all that `Placing.fitted` leaves to the accelerator. From there segments go to the CPU that are
    estimated to be faster on it, until there are none: the last. Raises UnsupportedModel where no part was the
    accelerator's, and what the `Converter` refuses of no node.
    """
    left: Mapping[str, str] = placing.divisible.lacking(placing.operators)
    found: list[Placed] = []
    while True:
        placed = placing.fitted(left)
        if not placed.uses_accelerator:
            if found:
                return found
            raise UnsupportedModel(
                f"no operator of the model runs on {placing.chip.target}",
                fix="compile it for a CPU",
                refusals=_refusals(placed.divisible, placed.left),
            )
        found.append(placed)
        more = placing.not_worth(placed)
        if not more:
            return found
        left = {**placed.left, **more}


class Placing:
    """Places nodes of a network on an accelerator or on the CPU `core` beside it.

    Files that were compiled are kept, and what segments take on the CPU: many are there again in the next division.
    """

    def __init__(self, network: Network, ranges: Mapping[str, tuple[float, float]], chip: Chip, core: str) -> None:
        self.divisible, self.chip, self.core = Divisible(network), chip, core
        self.operators = operators_of(chip)
        self._network, self._ranges, self._schemes = network, ranges, schemes_of(network)
        self._compiled: dict[bytes, tuple[Compiled | None, Mapping[str, str]]] = {}
        self._modelled: dict[bytes, float | None] = {}

    def fitted(self, left: Mapping[str, str]) -> Placed:
        """`left` to the CPU, by first results with the reasons, and what else must be; perhaps that is all.

        What has no int8 operator, what such an operator refuses, and what Vela leaves to the CPU go to the CPU, and
        what is left is divided and compiled anew, until all parts of the accelerator run there whole.
        """
        while True:
            segments = self.divisible.segments(left) if left else [self.divisible.whole()]
            converted, more = _converted(segments, self._ranges, self._schemes, self.operators)
            if not more:
                made: list[tuple[Converted, Compiled] | None] = []
                for one in converted:
                    if one is None:
                        made.append(None)
                        continue
                    compiled, reasons = self._written(one)
                    made.append((one, compiled) if compiled else None)
                    more |= {written_for(one, self._network, name).output[0]: why for name, why in reasons.items()}
            if not more:
                return Placed(self.divisible, tuple(segments), tuple(made), left)
            if {*more} <= {*left}:
                said = f"{sorted(more)[0]!r:.100} was left to the CPU, and stands in an accelerator's part"
                raise InternalError(said)
            left = {**left, **more}

    def _written(self, converted: Converted) -> tuple[Compiled | None, Mapping[str, str]]:
        if converted.model not in self._compiled:
            self._compiled[converted.model] = written(converted, self.chip)
        return self._compiled[converted.model]

    def not_worth(self, placed: Placed) -> dict[str, str]:
        """Why nodes of segments go to the CPU for which the accelerator and the call of it are estimated to be slower.

        Costs add up, so each segment is judged by itself. One stays on the accelerator, the one that gains most.
        """
        gains: dict[int, tuple[float, str]] = {}
        for number, (segment, one) in enumerate(zip(placed.segments, placed.made, strict=True)):
            if one is not None:
                converted, made = one
                here = called_seconds(made)
                there = made.macs / MOST_MACS.get(self.core, math.inf)
                if len(placed.segments) > 1 and there < here:
                    if converted.model not in self._modelled:
                        self._modelled[converted.model] = modelled_seconds(segment.network.bytes(), self.core)
                    seconds = self._modelled[converted.model]
                    there = math.inf if seconds is None else seconds
                why = f"{1e3 * here:.3f} ms there with the call, {1e3 * there:.3f} ms on the CPU, as estimated"
                gains[number] = there - here, why
        kept = max(gains, key=lambda number: gains[number])
        return {
            node.output[0]: why
            for number, (gain, why) in gains.items()
            if gain < 0 and number != kept
            for node in placed.segments[number].nodes
        }


def alone_on_cpu(network: Network) -> Placed:
    """All nodes as one part of the CPU's. Raises UnsupportedModel where a shape is not known."""
    divisible = Divisible(network)
    left = {node.output[0]: "the whole model runs on the CPU" for node in divisible.placed}
    segments = tuple(divisible.segments(left))
    return Placed(divisible, segments, (None,) * len(segments), left)


def _refusals(divisible: Divisible, left: Mapping[str, str]) -> tuple[Refusal, ...]:
    return tuple(Refusal(left[node.output[0]], "", named(node), node.op_type) for node in divisible.placed)


def _converted(
    segments: Sequence[Segment],
    ranges: Mapping[str, tuple[float, float]],
    schemes: Mapping[str, Scale],
    operators: Mapping[str, Any],
) -> tuple[list[Converted | None], dict[str, str]]:
    """The accelerator's segments as TFLite, or why a node cannot be, by its first result."""
    known = {**schemes}
    found: list[Converted | None] = []
    for at, segment in enumerate(segments):
        if not segment.accelerated:
            found.append(None)
            continue
        handed_on = {name for one in segments[at + 1 :] for name in one.inputs}
        try:
            one = Converter(segment.network, ranges, known).convert(operators, handed_on)
        except UnsupportedModel as error:
            why = {refusal.node: refusal.reason for refusal in error.refusals}
            refused = {node.output[0]: why[named(node)] for node in segment.nodes if named(node) in why}
            if not refused:
                raise
            return [], refused
        if not one.program.steps:
            return [], {node.output[0]: IDLE for node in segment.nodes}
        known |= {port.name: port.scale for port in one.outputs}
        found.append(one)
    return found, {}


def written_for(converted: Converted, network: Network, name: str) -> NodeProto:
    """The node that a tensor of the file was written for: which it is the result of, or an operand in another layout.

    Raises UnsupportedModel where that is none.
    """
    program = converted.program
    names = [name]
    for one in names:
        made = one.removesuffix(".rescaled")
        if made in converted.origin:
            return network.producer[made]
        numbers = {number for number, tensor in enumerate(program.tensors) if tensor.name == one}
        steps = [step for step in program.steps if numbers.intersection(step.inputs)]
        names += [program.tensors[number].name for step in steps for number in step.outputs]
    raise UnsupportedModel(
        f"Vela leaves {name!r:.100} to the CPU, which no operator of the model stands for",
        fix="report this model",
    )


def called_seconds(compiled: Compiled) -> float:
    """What a part of the accelerator's takes, with the calls of it."""
    return compiled.seconds + compiled.streams * HANDOVER_S


class Assembly:
    """What passes between the parts of a placed model: names, and how bytes are stored.

    inputs, outputs   of the model, as the manifest lists them. `held` is what one is called between parts
    """

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        network, divisible = placed.divisible.network, placed.divisible
        self.ports: dict[str, Port] = {}
        for segment, made in zip(placed.segments, placed.made, strict=True):
            for port in (*made[0].inputs, *made[0].outputs) if made else ():
                known = self.ports.setdefault(port.name, port)
                if (known.scale, known.stored) != (port.scale, port.stored):
                    raise InternalError(f"two parts of {segment} hold {port.name!r:.100} otherwise")
        self.names = {name: network.fresh(f"{name}.int8") for name in self.ports}
        self.by_accelerator = {name for one in placed.segments if one.accelerated for name in one.outputs}
        ends = [one.name for one in network.proto.graph.output]
        self.inputs = [self._row(name, name, as_bytes=name in self.ports) for name in network.inputs]
        roots = [name if name in self.by_accelerator else divisible.root(name) for name in ends]
        self.outputs = [
            self._row(name, root, as_bytes=root in self.by_accelerator) for name, root in zip(ends, roots, strict=True)
        ]
        self.given = {*roots}

    def _row(self, name: str, tensor: str, *, as_bytes: bool) -> dict[str, Any]:
        """An input or output of the model that is, or is made of, a tensor."""
        if as_bytes:
            return {**self.ports[tensor].to_json(), "name": name, "held": self.names[tensor]}
        type = self.placed.divisible.type_of(tensor).type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(type.elem_type)).name
        return {"name": name, "dtype": dtype, "shape": [dim.dim_value for dim in type.shape.dim], "held": tensor}

    def on_accelerator(self, segment: Segment, made: tuple[Converted, Compiled]) -> OnAccelerator:
        """A part of the accelerator's."""
        converted, compiled = made
        inputs, outputs = (
            tuple(self.names[port.name] for port in ports) for ports in (converted.inputs, converted.outputs)
        )
        sizes = [sum(math.prod(port.stored) for port in ports) for ports in (converted.inputs, converted.outputs)]
        return OnAccelerator(segment, converted, compiled, inputs, outputs, *sizes)

    def model_of(self, segment: Segment) -> bytes:
        """A segment of the CPU's as a model."""
        others = [one for one in self.placed.segments if one is not segment]
        here, there = (
            {name for one in others if one.accelerated == is_npu for name in one.inputs} for is_npu in (False, True)
        )
        given = {name: (self.names[name], self.ports[name]) for name in segment.inputs if name in self.by_accelerator}
        taken = {name: (self.names[name], self.ports[name]) for name in segment.outputs if name in there}
        return on_cpu(segment, given, taken, here | self.given)

    def on_cpu(self, segment: Segment, model: Any, beside: Beside) -> OnCpu:
        """A part of the CPU's, of which `model` is the program as it was loaded."""
        shapes = {
            name: tuple(dim.dim_value for dim in self.placed.divisible.type_of(name).type.tensor_type.shape.dim)
            for node in segment.nodes
            for name in node.output
            if name in self.placed.divisible.types
        }
        inputs, outputs = (tuple(one.name for one in specs) for specs in (model.inputs, model.outputs))
        taken, given = (
            {one.name: one.numpy.itemsize * math.prod(one.shape) for one in specs}
            for specs in (model.inputs, model.outputs)
        )
        return OnCpu(segment, inputs, outputs, shapes, beside, sum(taken.values()), given)


@dataclass(frozen=True)
class Assembled:
    """A placed model whose parts are made, in order, and what runs each of them here."""

    assembly: Assembly
    parts: Sequence[Part]
    runs: Sequence[PartRun]

    def held(self, sample: Sample) -> dict[str, np.ndarray]:
        """All that passes between the parts on a sample, by the names of the manifest."""
        held = entered(self.assembly.inputs, sample)
        for part, run in zip(self.parts, self.runs, strict=True):
            step(part.inputs, part.outputs, run, held)
        return held

    def run(self, sample: Sample) -> dict[str, np.ndarray]:
        """The outputs, the accelerator's parts by `kernels`: what stands in for LiteRT where it is not installed."""
        return taken(self.assembly.outputs, self.held(sample))


@contextmanager
def assembled(
    placed: Placed, sample: Sample, compile_part: CompilePart, tuning_budget_s: float, core: str = CORES[0]
) -> Iterator[Assembled]:
    """The parts, those of the CPU's compiled and priced for `core`; they run until the context ends.

    A part of the CPU's is proved on what those before it make of the sample. The tuning budget is shared by them.
    """
    assembly = Assembly(placed)
    rest = sum(not one.accelerated for one in placed.segments)
    budget = tuning_budget_s / max(rest, 1)
    parts: list[Part] = []
    runs: list[PartRun] = []
    held = entered(assembly.inputs, sample)
    with ExitStack() as opened:
        for segment, made in zip(placed.segments, placed.made, strict=True):
            if made is not None:
                parts.append(assembly.on_accelerator(segment, made))
                runs.append(run_of(*made))
            else:
                rest -= 1
                model = assembly.model_of(segment)
                wanted = [one.name for one in onnx.load_from_string(model).graph.input]
                beside = compiled_beside(model, {name: held[name] for name in wanted}, compile_part, budget, core)
                loaded = opened.enter_context(program(next(iter(beside.programs.values()))))
                parts.append(assembly.on_cpu(segment, loaded, beside))
                runs.append(part_run(loaded))
            if rest:
                step(parts[-1].inputs, parts[-1].outputs, runs[-1], held)
        yield Assembled(assembly, parts, runs)
