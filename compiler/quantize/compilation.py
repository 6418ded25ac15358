"""Precision int8 of a compilation: the model that it is given is quantised, and what comes out is compiled."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from compiler.contract import (
    CompileOptions,
    Event,
    QuantisedReport,
    QuantizeOptions,
    bundle_digest,
    kinds,
)
from compiler.errors import InputsError
from compiler.frontend import load
from compiler.frontend.reading.model import Model
from compiler.ops import OPERATORS
from compiler.pack.facts import QuantisedModel
from compiler.pack.pack import digest_of
from compiler.quantize.layers import layers_of
from compiler.quantize.network import Network, open_network
from compiler.quantize.prepare import fold
from compiler.quantize.quantize import QuantizeReport, demand_layers, quantize
from compiler.quantize.samples import Sample, given, shaped
from compiler.request import Request
from compiler.trace import Trace

SNR_DB = 20.0
"""What every output must have where the option `snr_db` does not say: noise of a tenth of the signal."""
ALREADY = "the model holds QuantizeLinear or DequantizeLinear: it is compiled as it is, with its own scales"
QUANTISING = ("QuantizeLinear", "DequantizeLinear")
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Source:
    """What is compiled: a request whose archives hold one sample each, and its model, if it was quantised here."""

    request: Request
    quantised: QuantisedModel | None = None


@contextmanager
def source_of(trace: Trace, request: Request) -> Iterator[Source]:
    """What a compilation compiles, as long as the context lasts.

    That is what was asked for; in precision int8 the QDQ model made of it, whose outputs have `options.snr_db` against
    it. Ranges come from all samples of the archives, in the shapes of the first binding where an archive has these,
    else in the archive's own. A model that is quantised already is left as it is. `trace` gets the steps.

    Raises what `compiler.quantize.quantize` raises.
    """
    if request.options.precision != "int8":
        yield Source(request)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
        with trace.step("load"):
            read, network = open_network(request.model, request.data)
            wanted = calibration(request.options, network)
            already = is_quantised(network)
            each = {} if already else _by_archive(read, request, wanted)
        if already:
            trace.notice(ALREADY)
            yield Source(request)
            return
        with trace.step("rewrite"):
            out = Path(folder) / "model.int8.onnx"
            values = [sample for found in each.values() for sample in found]
            made = quantize(request.model, out, wanted, values, _heard(trace), request.data)
        report = _reported(made, out, request.samples, wanted)
        trace.notice(str(report))
        digests = {name: digest_of(path) for name, path in (request.data or {}).items()}
        quantised = QuantisedModel(bundle_digest(read.digest, digests), out.read_bytes(), report)
        alone = _alone(request.samples, each, Path(folder))
        yield Source(replace(request, model=out, data=None, samples=alone), quantised)


def calibration(options: CompileOptions, network: Network) -> QuantizeOptions:
    """How a model is quantised for a compilation under these options; without a budget if no output is a float.

    Attention is computed from bytes on CPUs: on a GPU one kernel computes it in floating point, and scores stay in it.
    """
    has_floats = any(one.type.tensor_type.elem_type in FLOATS for one in network.proto.graph.output)
    snr_db = SNR_DB if options.snr_db is None and has_floats else options.snr_db
    kind = kinds.find(options.target)
    return QuantizeOptions(
        ranges=options.ranges,
        equalise=options.equalise,
        snr_db=snr_db,
        attention=kind is not None and kind.attention,
        inputs=options.inputs,
        dims=options.bindings[0].binding,
        seed=options.seed,
    )


def is_quantised(network: Network) -> bool:
    """Whether a model rounds, or reads what was rounded, by itself."""
    return any(node.op_type in QUANTISING for node in network.nodes)


def foreseen_layers(model: Path, options: CompileOptions, data: Mapping[str, Path] | None) -> str:
    """What may become of a model's layers under these options, as a notice, before anything is evaluated.

    Raises UnsupportedModel where no layer can be quantised, and what reading and loading the model raises.
    """
    _, network = open_network(model, data, oldest=1)
    if is_quantised(network):
        return ALREADY
    wanted = calibration(options, network)
    fold(network, attention=wanted.attention)
    graph = load(network.bytes(), shaped(wanted), OPERATORS).graph
    layers, left = layers_of(network, graph, (), attention=wanted.attention)
    demand_layers(layers, left, network, wanted)
    kept = "; ".join(f"{one.name:.60} stays in float32: {one.reason}" for one in left[:8])
    budget = "" if wanted.snr_db is None else f", as many of them as leave every output {wanted.snr_db:g} dB"
    count = f"{len(layers)} of {len(layers) + len(left)} layers can be computed in int8"
    return count + budget + (f" ({kept})" if kept else "")


def _by_archive(read: Model, request: Request, options: QuantizeOptions) -> dict[str, list[Sample]]:
    """The samples in each archive."""
    if not request.samples:
        return {}
    graph = load(request.model, shaped(options), OPERATORS, data=request.data).graph
    shapes = {graph.values[id].name: graph.type(id).dims for id in graph.inputs}
    inputs = tuple(replace(one, shape=shapes.get(one.name, one.shape)) for one in read.body.inputs)
    sized = replace(read, body=replace(read.body, inputs=inputs))
    found = {}
    for name, path in request.samples.items():
        try:
            found[name] = given(sized, {name: path}, options)
        except InputsError:
            found[name] = given(read, {name: path}, options)
    return found


def _alone(files: Mapping[str, Path], each: Mapping[str, list[Sample]], folder: Path) -> dict[str, Path]:
    """An archive of one sample for each that was given: itself, or its first sample written to the folder."""
    found = {}
    for number, (name, path) in enumerate(files.items()):
        found[name] = path
        if len(each[name]) > 1:
            found[name] = folder / f"sample{number}.npz"
            arrays: dict[str, Any] = dict(each[name][0])
            np.savez(found[name], **arrays)
    return found


def _heard(trace: Trace) -> Any:
    def hear(event: Event) -> None:
        if event.kind == "notice":
            trace.notice(event.message)
        else:
            trace.progress(event.fraction, event.message)

    return hear


def _reported(
    found: QuantizeReport, made: Path, files: Mapping[str, Path], options: QuantizeOptions
) -> QuantisedReport:
    """The report of `compiler.quantize.quantize` as that of a compilation has it."""
    return QuantisedReport(
        model_digest=hashlib.sha256(made.read_bytes()).hexdigest(),
        samples=tuple(digest_of(path) for path in files.values()),
        count=found.samples,
        snr_db=options.snr_db,
        layers=found.layers,
        outputs=found.outputs,
    )
