"""A model in fp32 or QDQ as an artifact for an accelerator.

It is legalised where the accelerator lacks operators, quantised, written as TFLite or TOSA, compiled, packed and
judged.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.accelerate import interpreter
from compiler.accelerate.chips import FORMATS, Chip, chip_of
from compiler.accelerate.choosing import Asked, Chosen, chosen
from compiler.accelerate.convert import floats_without_scale
from compiler.accelerate.cores import CORES
from compiler.accelerate.judging import LEAST_SNR_DB, Comparison
from compiler.accelerate.parts import Assembled, OnAccelerator, Part, assembled, place
from compiler.accelerate.pipelining import NO_STATES
from compiler.accelerate.placement import page, placement, text
from compiler.accelerate.stages import Stages
from compiler.accelerate.states import demand_carried
from compiler.accelerate.streaming import demand_same_in_flight, pipeline_of, stages_of, stream_json
from compiler.accelerate.tables import TABLES, operators_of
from compiler.accelerate.tosa import execute
from compiler.accelerate.vela import VERSION, demand_vela
from compiler.contract import QuantizeOptions
from compiler.contract.devices import Within
from compiler.contract.version import COMPILER_VERSION
from compiler.devices.kind import CompilePart
from compiler.errors import OptionsError, UnsupportedModel
from compiler.legalise import LegaliseOptions, legalise
from compiler.pack.archive import write_archive
from compiler.pack.manifest import FORMAT_VERSION, files_json, to_bytes
from compiler.quantize import quantize
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.layers import SEEN_THROUGH, id_of, ids_of
from compiler.quantize.network import Network, open_network
from compiler.quantize.samples import Sample, derived, given
from compiler.trace import Trace

TOLERANCE = 0.05
"""Of an output's largest value: what approximations of operators that the accelerator lacks may cost."""
JUDGED = 4
"""Samples that the artifact is judged on."""
DERIVED = "ranges come from random inputs, which are seldom like real ones: give samples"
WITHOUT_LITERT = (
    "judged by the int8 operators of this compiler alone: LiteRT is not installed (pip install 'ai-edge-litert>=2.1')"
)


def compile_for_accelerator(
    model: Path,
    artifact: Path,
    target: str,
    compile_part: CompilePart,
    samples: Mapping[str, Path] | None = None,
    trace: Trace | None = None,
    *,
    tolerance: float | None = TOLERANCE,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    largest_error: float | None = None,
    snr_db: float = LEAST_SNR_DB,
    tuning_budget_s: float = 0.0,
    beside: str | None = None,
    objective: str | Within = "latency",
    carry: Mapping[str, str] = NO_STATES,
    format: str = FORMATS[0],
) -> dict[str, Any]:
    """Writes the artifact and tells what came of it.

    That is `placement`, `agreement`, `notices`, `text` for a terminal, `nodes` (of the model), `weight_bytes` (of the
    files that Vela is given) and `judged` (how many samples it was judged on).

    `samples` are .npz archives as `compiler.quantize` takes them; without any, inputs are drawn, with a notice. A model
    with QuantizeLinear and DequantizeLinear keeps its scales and its operators. One in fp32 is legalised first
    (`compiler.legalise`) if the accelerator lacks any of its operators, so that an output is off by no more than
    `tolerance` of its largest value on the samples; with None it is compiled as it is. `dims` are sizes of symbolic
    dimensions, `shapes` those of whole inputs. `trace` gets the steps. Where `largest_error` is given no output
    may be off by more, of its largest value, and every output must have `snr_db` of signal to noise.

    What the accelerator does not carry out, `compile_part` compiles for the CPU beside it, within `tuning_budget_s`.
    Where that CPU is named, `beside`, it may carry out more, or all: what is estimated to be fastest, or where another
    `objective` is named with it, to end most inferences that follow each other. Of these the outputs that `carry` names
    are inputs of the next one.

    Vela is given it in `format`, one of `chips.FORMATS`; what passes between parts is the same.

    Raises OptionsError for states that cannot be carried, TargetUnavailable, ToolchainMissing where Vela is not
    installed, UnsupportedModel for a model of which no node is the accelerator's, Disagreement below `snr_db`, beyond
    `largest_error`, and where LiteRT computes an operator more than a step otherwise, Unverified for an output that no
    sample shows, and what the front end, legalisation, quantisation and `compile_part` raise.
    """
    chip = chip_of(target, format)
    demand_vela()
    options = QuantizeOptions(activations="int8", outputs=True, attention=False)
    trace = trace or Trace()
    if not samples:
        trace.notice(DERIVED)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        with trace.step("load"):
            fixed = model
            if dims or shapes:
                fixed = with_sizes(model, dims or {}, Path(folder) / "model.fixed.onnx", shapes or {})
            read, network = open_network(fixed)
            whole = network
            values = given(read, samples, options) if samples else derived(fixed, options)
            nodes = len(network.nodes)
            demand_carried(network, carry)
        with trace.step("rewrite"):
            path, report, unquantised = fixed, None, ""
            try:
                if not any(node.op_type == "QuantizeLinear" for node in network.nodes):
                    legal = fixed
                    if tolerance is not None:
                        out = Path(folder) / "model.legal.onnx"
                        legal, report = legal_model(fixed, chip, out, samples or {}, tolerance)
                    path = Path(folder) / "model.int8.onnx"
                    quantize(legal, path, options, samples or {})
                    _, network = open_network(path)
                ranges = ranges_of(network, path, options, values)
            except UnsupportedModel as no:
                if beside is None:
                    raise
                ranges, unquantised = {}, no.message
        with trace.step("emit"):
            found: Chosen | None = None
            if beside is None:
                placed = place(network, ranges, chip)
                made = stack.enter_context(assembled(placed, values[0], compile_part, tuning_budget_s))
            else:
                asked = Asked(whole, network, ranges, chip, beside, unquantised, objective, carry)
                found = stack.enter_context(chosen(asked, values[0], compile_part, tuning_budget_s))
                made = found.made
                if found.notice:
                    trace.notice(found.notice)
        stages = None
        if found and objective != "latency":
            stages = stages_of(made, carry)
            stages.verify()
            trace.show("stages", stages)
        left = made.assembly.placed.left
        candidates = found.candidates if found else []
        document = {**placement(made.parts, chip, left, beside or CORES[0], candidates), "legalised": report}
        if found and stages:
            document["pipeline"] = pipeline_of(str(objective), found, stages)
        unproven = artifact.with_name(f".{artifact.name}.unproven")
        try:
            with trace.step("pack"):
                write(unproven, model, chip, made, document, None, stages, carry)
            with trace.step("agree"):
                comparison = Comparison(fixed, options, values[:JUDGED], made)
                if format == "tflite" and util.find_spec("ai_edge_litert") is None:
                    trace.notice(WITHOUT_LITERT)
                    agreement = comparison.judge(made.run, snr_db, largest_error)
                else:
                    with interpreter.Model(unproven) as runs:
                        agreement = comparison.judge(runs.run, snr_db, largest_error)
                        if stages:
                            demand_same_in_flight(runs, values[:JUDGED])
                    for notice in comparison.differences():
                        trace.notice(notice)
                write(unproven, model, chip, made, document, agreement, stages, carry)
            os.replace(unproven, artifact)
        finally:
            unproven.unlink(missing_ok=True)
    return {
        "placement": document,
        "agreement": agreement,
        "notices": trace.notices,
        "text": "\n".join([*trace.notices, text(document, agreement)]),
        "nodes": nodes,
        "weight_bytes": sum(len(part.compiled.given) for part in made.parts if isinstance(part, OnAccelerator)),
        "judged": len(values[:JUDGED]),
    }


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
    model: Path,
    chip: Chip,
    made: Assembled,
    document: Mapping[str, Any],
    agreement: Sequence[Mapping[str, Any]] | None,
    stages: Stages | None = None,
    carried: Mapping[str, str] = NO_STATES,
) -> None:
    """The artifact: int8 TFLite or TOSA, command streams, programs of the CPU's parts, placement, report, loader."""
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
        "model_digest": hashlib.sha256(model.read_bytes()).hexdigest(),
        "target": chip.target,
        "predicted_s": document["totals"]["seconds"],
        "predicted_by": document["estimated_by"],
        "beside": document["beside"],
        "inputs": made.assembly.inputs,
        "outputs": made.assembly.outputs,
        "parts": parts,
        **({"stream": stream_json(document, stages, made.parts, carried)} if stages else {}),
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
