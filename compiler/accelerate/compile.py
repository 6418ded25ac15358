"""A model in fp32 or QDQ as an artifact for an accelerator.

It is legalised where the accelerator lacks operators, quantised, written as TFLite or TOSA, compiled, packed and
judged.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.accelerate import interpreter
from compiler.accelerate.chips import FORMATS, Chip, chip_of
from compiler.accelerate.choosing import Asked, chosen
from compiler.accelerate.judging import LEAST_SNR_DB, Comparison
from compiler.accelerate.parts import Assembled, OnAccelerator, Part, assembled, place
from compiler.accelerate.placement import page, placement, text
from compiler.accelerate.stages import Stages
from compiler.accelerate.states import demand_carried
from compiler.accelerate.streaming import demand_same_in_flight, pipeline_of, stages_of, stream_json
from compiler.accelerate.tables import TABLES, operators_of
from compiler.accelerate.tflite.convert import floats_without_scale
from compiler.accelerate.tosa import execute
from compiler.accelerate.vela import VERSION, demand_vela
from compiler.contract import LegaliseOptions, QuantizeOptions
from compiler.contract.version import COMPILER_VERSION
from compiler.devices.kind import CompilePart
from compiler.errors import OptionsError, UnsupportedModel
from compiler.legalise import legalise
from compiler.pack.archive import write_archive
from compiler.pack.manifest import FORMAT_VERSION, files_json, to_bytes
from compiler.quantize import quantize
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.layers import SEEN_THROUGH, id_of, ids_of
from compiler.quantize.network import Network, open_network
from compiler.quantize.samples import Sample, derived, divided
from compiler.quantize.samples import given as samples_of
from compiler.request import Request
from compiler.trace import Trace

TOLERANCE = 0.05
"""Of an output's largest value: what approximations of operators that the accelerator lacks may cost."""
OPTIONS = QuantizeOptions(activations="int8", outputs=True, attention=False)
"""Under which models are quantised, with the request's ranges."""
JUDGED = 4
"""Samples that the artifact is judged on, at most."""
DERIVED = "ranges come from random inputs, which are seldom like real ones: give samples"
WITHOUT_LITERT = (
    "judged by the int8 operators of this compiler alone: LiteRT is not installed (pip install 'ai-edge-litert>=2.1')"
)


@dataclass(frozen=True)
class Accelerated:
    """What came of a model that was compiled for an accelerator.

    placement     the document of the artifact's placement.json
    agreement     of each output
    nodes         of the model; `weight_bytes`: of the files that Vela is given
    judged        how many samples it was judged on
    """

    placement: Mapping[str, Any]
    agreement: Sequence[Mapping[str, Any]]
    notices: tuple[str, ...]
    nodes: int
    weight_bytes: int
    judged: int

    def __str__(self) -> str:
        return "\n".join([*self.notices, text(self.placement, self.agreement)])

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, and its text for a terminal, ready for `json.dumps`."""
        first = ("placement", "agreement", "notices")
        return {**{name: getattr(self, name) for name in first}, "text": str(self), **vars(self)}


@dataclass(frozen=True)
class _Given:
    """The model in the sizes that were asked for, how many nodes it has, and values of its inputs."""

    model: Path
    network: Network
    nodes: int
    values: Sequence[Sample]

    @property
    def judged(self) -> Sequence[Sample]:
        """The samples that the artifact is judged on: those that nothing was calibrated on, where there are such."""
        return (divided(self.values)[1] or self.values)[:JUDGED]


@dataclass(frozen=True)
class _InBytes:
    """The quantised model with the ranges of its tensors, or why there is none; the report of legalisation."""

    network: Network
    ranges: Mapping[str, tuple[float, float]]
    legalised: dict[str, Any] | None = None
    refused: str = ""


@dataclass(frozen=True)
class _Placed:
    """The parts that were made, what they are, and how inferences follow each other in them."""

    made: Assembled
    document: Mapping[str, Any]
    stages: Stages | None


def compile_for_accelerator(
    request: Request,
    compile_part: CompilePart,
    trace: Trace | None = None,
    *,
    tolerance: float | None = TOLERANCE,
    largest_error: float | None = None,
) -> Accelerated:
    """Writes the artifact and says what came of it. `trace` gets the steps.

    Without samples inputs are drawn, with a notice. A model with QuantizeLinear and DequantizeLinear keeps its scales
    and its operators. One in fp32 is legalised first (`compiler.legalise`) if the accelerator lacks any of its
    operators, so that an output is off by no more than `tolerance` of its largest value on the samples; with None it is
    compiled as it is. `options.ranges` and `options.equalise` say how one in fp32 is quantised. Where `largest_error`
    is given no output may be off by more, of its largest value.

    What the accelerator does not carry out, `compile_part` compiles for the CPU beside it. Where that CPU is named,
    `options.beside`, it may carry out more, or all: what is estimated to be fastest, or where another objective is
    named with it, to end most inferences that follow each other.

    Raises OptionsError for states that cannot be carried, TargetUnavailable, ToolchainMissing where Vela is not
    installed, UnsupportedModel for a model of which no node is the accelerator's, Disagreement below `options.snr_db`,
    beyond `largest_error`, and where LiteRT computes an operator more than a step otherwise, Unverified for an output
    that no sample shows, and what the front end, legalisation, quantisation and `compile_part` raise.
    """
    chip = chip_of(request.options.compiled_for, request.options.format or FORMATS[0])
    demand_vela()
    trace = trace or Trace()
    if not request.samples:
        trace.notice(DERIVED)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with trace.step("load"):
            given = _load(request, folder)
        with trace.step("rewrite"):
            in_bytes = _in_bytes(request, chip, given, folder, tolerance)
        with trace.step("emit"):
            placed = stack.enter_context(_placed(request, chip, given, in_bytes, compile_part, trace))
        agreement = _judged(request, chip, given, placed, largest_error, trace)
    return Accelerated(
        placed.document,
        agreement,
        notices=tuple(trace.notices),
        nodes=given.nodes,
        weight_bytes=sum(len(part.compiled.given) for part in placed.made.parts if isinstance(part, OnAccelerator)),
        judged=len(given.judged),
    )


def _load(request: Request, folder: Path) -> _Given:
    model, options = request.model, request.options
    shapes = {name: spec.shape for name, spec in options.inputs.items() if spec.shape is not None}
    if options.binding or shapes:
        model = with_sizes(model, options.binding, folder / "model.fixed.onnx", shapes)
    read, network = open_network(model)
    values = samples_of(read, request.samples, OPTIONS) if request.samples else derived(model, OPTIONS)
    demand_carried(network, options.named_states)
    return _Given(model, network, len(network.nodes), values)


def _in_bytes(request: Request, chip: Chip, given: _Given, folder: Path, tolerance: float | None) -> _InBytes:
    """Legalised and quantised, unless the model is quantised already."""
    path, network, report = given.model, given.network, None
    try:
        if not any(node.op_type == "QuantizeLinear" for node in network.nodes):
            legal = given.model
            if tolerance is not None:
                out = folder / "model.legal.onnx"
                legal, report = legal_model(given.model, chip, out, request.samples, tolerance)
            path = folder / "model.int8.onnx"
            wanted = replace(OPTIONS, ranges=request.options.ranges, equalise=request.options.equalise)
            quantize(legal, path, wanted, request.samples)
            _, network = open_network(path)
        return _InBytes(network, ranges_of(network, path, OPTIONS, given.values), report)
    except UnsupportedModel as no:
        if request.options.beside is None:
            raise
        return _InBytes(network, {}, report, no.message)


@contextmanager
def _placed(
    request: Request, chip: Chip, given: _Given, in_bytes: _InBytes, compile_part: CompilePart, trace: Trace
) -> Iterator[_Placed]:
    """The parts, which run until the context ends; where a CPU is named beside, of the placement that was chosen."""
    network, ranges, options = in_bytes.network, in_bytes.ranges, request.options
    budget_s = options.tuning_budget_s
    if options.beside is None:
        with assembled(place(network, ranges, chip), given.values[0], compile_part, budget_s) as made:
            document = placement(made.parts, chip, made.assembly.placed.left)
            yield _Placed(made, {**document, "legalised": in_bytes.legalised}, None)
        return
    asked = Asked(
        given.network, network, ranges, chip, options.beside, in_bytes.refused, options.objective, options.named_states
    )
    with chosen(asked, given.values[0], compile_part, budget_s) as found:
        if found.notice:
            trace.notice(found.notice)
        made, stages = found.made, None
        document = placement(made.parts, chip, made.assembly.placed.left, options.beside, found.candidates)
        document["legalised"] = in_bytes.legalised
        if asked.is_pipeline:
            stages = stages_of(made, options.named_states)
            stages.verify()
            trace.show("stages", stages)
            document["pipeline"] = pipeline_of(str(options.objective), found, stages)
        yield _Placed(made, document, stages)


def _judged(
    request: Request, chip: Chip, given: _Given, placed: _Placed, largest_error: float | None, trace: Trace
) -> Sequence[Mapping[str, Any]]:
    """Writes the artifact, and gives it its name once it agreed with the model; the agreement."""
    values, snr_db = given.judged, request.options.snr_db or LEAST_SNR_DB
    unproven = request.beside("unproven")
    try:
        with trace.step("pack"):
            write(unproven, request, chip, placed, None)
        with trace.step("agree"):
            comparison = Comparison(given.model, OPTIONS, values, placed.made)
            if chip.format == "tflite" and util.find_spec("ai_edge_litert") is None:
                trace.notice(WITHOUT_LITERT)
                agreement = comparison.judge(placed.made.run, snr_db, largest_error)
            else:
                with interpreter.Model(unproven) as runs:
                    agreement = comparison.judge(runs.run, snr_db, largest_error)
                    if placed.stages:
                        demand_same_in_flight(runs, values)
                for notice in comparison.differences():
                    trace.notice(notice)
            write(unproven, request, chip, placed, agreement)
        os.replace(unproven, request.artifact)
    finally:
        unproven.unlink(missing_ok=True)
    return agreement


def with_sizes(
    model: Path, dims: Mapping[str, int], out: Path, shapes: Mapping[str, Sequence[int]] | None = None
) -> Path:
    """A copy of the model, written to `out`, with numbers for symbolic dimensions of its inputs, or for whole inputs.

    Raises OptionsError for a name that is none of them, a size below 1, and a shape of another rank.
    """
    proto = onnx.load(model)
    inputs = {one.name: one.type.tensor_type.shape.dim for one in proto.graph.input}
    for name, shape in (shapes or {}).items():
        if name not in inputs:
            raise OptionsError(f"{name!r:.100} is no input", fix=f"those are: {', '.join(inputs)}")
        if len(inputs[name]) != len(shape) or min(shape, default=1) < 1:
            raise OptionsError(
                f"input {name!r:.100} cannot have the shape {list(shape)}",
                fix=f"give {len(inputs[name])} sizes, each 1 or more",
            )
        for axis, size in zip(inputs[name], shape, strict=True):
            axis.dim_value = size
    axes = [axis for one in proto.graph.input for axis in one.type.tensor_type.shape.dim]
    names = {axis.dim_param for axis in axes if axis.dim_param}
    if unknown := sorted({*dims} - names):
        raise OptionsError(f"{unknown[0]!r} is no symbolic dimension", fix=f"those are: {', '.join(sorted(names))}")
    if bad := [name for name, size in dims.items() if size < 1]:
        raise OptionsError(f"dimension {bad[0]!r} has the size {dims[bad[0]]}", fix="give 1 or more")
    for axis in axes:
        if axis.dim_param in dims:
            axis.dim_value = dims[axis.dim_param]
    del proto.graph.value_info[:]
    for one in proto.graph.output:
        one.type.tensor_type.ClearField("shape")
    onnx.save(proto, out)
    return out


def legal_model(
    model: Path, chip: Chip, out: Path, samples: Mapping[str, Path], tolerance: float
) -> tuple[Path, dict[str, Any] | None]:
    """The model in operators of its accelerator, written to `out`.

    With it comes the report of `compiler.legalise.legalise`, None if it had only such before. Raises as that does.
    """
    tables = TABLES if chip.format == "tosa" else ()
    options = LegaliseOptions(chip.profile, tolerance)
    report = legalise(model, out, options, samples, among=operators_of(chip), besides=tables)
    return out, None if report["before"]["share"] == 1.0 else report


def ranges_of(
    network: Network, path: Path, options: QuantizeOptions, values: Sequence[Sample]
) -> dict[str, tuple[float, float]]:
    """The least and greatest value on the samples of every tensor that no QuantizeLinear follows."""
    names = floats_without_scale(network)
    evaluated = Evaluated(path, options)
    found: dict[str, tuple[float, float]] = {}
    for sample in values:
        ids = ids_of(evaluated.loaded(sample).graph)
        known = {name: id for name in names if (id := _id_of(network, ids, name)) is not None}
        made = evaluated.values(sample, list(known.values()))
        for name, id in known.items():
            if id in made and np.asarray(made[id]).dtype.kind == "f":
                low, high = found.get(name, (0.0, 0.0))
                found[name] = min(low, float(made[id].min())), max(high, float(made[id].max()))
    return found


def _id_of(network: Network, ids: dict[str, int], name: str) -> int | None:
    """The graph's value for a name of the network, also for one that only an operator reads that does nothing."""
    found = id_of(network, ids, name)
    reader = network.only_reader(name)
    if found is None and reader is not None and network.operator(reader) in SEEN_THROUGH:
        return _id_of(network, ids, reader.output[0])
    return found


def write(
    path: Path,
    request: Request,
    chip: Chip,
    placed: _Placed,
    agreement: Sequence[Mapping[str, Any]] | None,
) -> None:
    """The artifact: int8 TFLite or TOSA, command streams, programs of the CPU's parts, placement, report, loader."""
    made, document, stages = placed.made, placed.document, placed.stages
    parts, members = rows_of(made.parts, chip)
    if chip.format == "tosa":
        members["tosa.py"] = Path(execute.__file__).read_bytes()
    members |= {
        "placement.json": to_bytes({**document, "agreement": agreement}),
        "report.html": page(document, agreement).encode(),
        "loader.py": Path(interpreter.__file__).read_bytes(),
    }
    manifest = {
        "format": "tilewright",
        "format_version": FORMAT_VERSION,
        "compiler_version": COMPILER_VERSION,
        "toolchain": f"Vela {VERSION}",
        "model_digest": hashlib.sha256(request.model.read_bytes()).hexdigest(),
        "target": chip.target,
        "predicted_s": document["totals"]["seconds"],
        "predicted_by": document["estimated_by"],
        "beside": document["beside"],
        "inputs": made.assembly.inputs,
        "outputs": made.assembly.outputs,
        "parts": parts,
        **({"stream": stream_json(document, stages, made.parts, request.options.named_states)} if stages else {}),
        "files": files_json(members),
    }
    write_archive(path, {"manifest.json": to_bytes(manifest), **members})


def rows_of(parts: Sequence[Part], chip: Chip) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The manifest's rows of the parts, and the members that they name: one part's have no number."""
    rows: list[dict[str, Any]] = []
    members: dict[str, bytes] = {}
    for number, part in enumerate(parts):
        row: dict[str, Any] = {"inputs": [*part.inputs], "outputs": [*part.outputs]}
        at = f".{number}" if len(parts) > 1 else ""
        if isinstance(part, OnAccelerator):
            row |= {"on": chip.target, "model": f"model{at}.{chip.format}", "stream": f"accelerator{at}.tflite"}
            members |= {row["model"]: part.compiled.given, row["stream"]: part.compiled.model}
        else:
            names = {f"cpu{at}.{machine}.tw": target for target, machine in part.beside.machines.items()}
            row |= {"on": "cpu", "programs": {name: part.beside.machines[target] for name, target in names.items()}}
            members |= {name: part.beside.programs[target] for name, target in names.items()}
        rows.append(row)
    return rows, members
