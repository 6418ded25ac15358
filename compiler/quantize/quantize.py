"""A model in fp32 and samples to a QDQ model, with a table of its layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from compiler.contract import QuantisedLayer, QuantisedOutput, QuantizeOptions
from compiler.errors import InternalError, OptionsError, Refusal, UnsupportedModel
from compiler.quantize.calibrate import Calibration, Evaluated, calibrate
from compiler.quantize.layers import Layer, Product, layers_of
from compiler.quantize.network import Left, Network, named, open_network
from compiler.quantize.prepare import equalise, fold
from compiler.quantize.progress import Progress, put
from compiler.quantize.ranges import range_of
from compiler.quantize.samples import HELD_OUT, Sample, derived, divided, given
from compiler.quantize.scheme import Affine, affine
from compiler.quantize.search import Chosen, Fidelity, choose, fidelity
from compiler.quantize.tensors import tensors_of
from compiler.quantize.write import write
from compiler.trace import Observer, ignore

BEGINS = {"load": 0.0, "calibrate": 0.05, "search": 0.5, "write": 0.95}
"""The steps as events name them, with the part of the whole at which each begins."""
BEST, TRIED = "best", ("mse", "minmax", "percentile")
"""A method of ranges that is one of others: the one whose outputs are nearest to fp32."""
CLOSE = 1e-4
"""By how much of the largest value preparing a model may move an output: the rounding of folded weights."""
DERIVED = (
    "no samples were given: ranges were taken from random inputs, which are seldom like real ones. "
    "Give some tens of real inputs as .npz"
)
NONE_HELD_OUT = (
    f"of fewer than {HELD_OUT} samples none is held out: signal to noise is that on the samples that ranges were taken "
    "from, and other inputs may have less"
)


@dataclass(frozen=True)
class QuantizeReport:
    """What became of each layer of a model that was quantised, in the model's order, and of its outputs.

    samples  how many; `held_out` of them were not calibrated on, and outputs are judged by them (by all, where none
             was); `derived`: whether they were drawn
    tensors  how many tensors of activations are bytes
    bytes    of the new file; `model_bytes`: of the given one, without external data
    notices  what the user should know
    """

    options: QuantizeOptions
    layers: tuple[QuantisedLayer, ...]
    outputs: tuple[QuantisedOutput, ...]
    samples: int
    held_out: int
    derived: bool
    tensors: int
    bytes: int
    model_bytes: int
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        rows = {"layers": [*map(asdict, self.layers)], "outputs": [*map(asdict, self.outputs)]}
        return {**vars(self), "options": self.options.to_json(), **rows}


def quantize(
    model: Path,
    out: Path,
    options: QuantizeOptions,
    samples: Mapping[str, Path] | Sequence[Sample] | None = None,
    observe: Observer = ignore,
    data: Mapping[str, Path] | None = None,
) -> QuantizeReport:
    """Writes a QDQ model to `out`, which appears whole, and returns what became of each layer.

    `samples` are .npz archives of inputs by what the caller calls them (`compiler.quantize.samples`), or what these
    hold. `data` says where external data lies, by its path in the model; None: beside it.

    Raises UnsupportedModel where no layer can be quantised, with the reason of each, and for an opset below 13;
    InputsError for samples that do not fit or are not finite; BudgetMissed where the budget cannot be held; and what
    the front end raises.
    """
    progress = Progress(observe, BEGINS)
    progress.begin("load")
    read, network = open_network(model, data)
    notices: list[str] = []
    if isinstance(samples, Mapping):
        samples = given(read, samples, options) if samples else None
    values = samples or derived(model, options, data)
    if not samples:
        notices.append(DERIVED)
        progress.notice(DERIVED)
    original = Evaluated(model, options, data)
    calibrated, held_out = divided(values)
    judged = held_out or values
    if not held_out:
        notices.append(NONE_HELD_OUT)
    folded = fold(network, attention=options.attention)
    if folded:
        notices.append(f"{folded} normalisations and factors were made part of weights")
    if options.equalise:
        notices.append(f"channels between {equalise(network)} pairs of layers were equalised")
    plain = Evaluated(network.bytes(), options)
    graph = plain.loaded(values[0]).graph
    layers, left = layers_of(network, graph, options.keep, attention=options.attention)
    demand_layers(layers, left, network, options)
    wanted = [original.outputs(sample) for sample in judged]
    _demand_same(wanted[0], plain.outputs(judged[0]))
    progress.begin("calibrate")
    tensors = [*tensors_of(network, graph, layers, outputs=options.outputs).roots]
    weighted = [layer for layer in layers if isinstance(layer, Layer)]
    calibration = calibrate(network, plain, weighted, tensors, calibrated, progress.part)

    @cache
    def schemes(method: str) -> dict[str, Affine]:
        return _schemes(calibration, options, method)

    def written(chosen: Collection[str], way: Way) -> Network:
        some = [layer for layer in layers if layer.name in chosen]
        ranges = schemes(way.ranges)
        return write(network, graph, some, ranges, calibration, correct=way.correct, outputs=options.outputs)

    def judge(chosen: Collection[str], way: Way, *, wide: bool = True) -> Fidelity:
        quantised = Evaluated(written(chosen, way).bytes(), options)
        return fidelity(wanted, [quantised.outputs(sample, wide=wide) for sample in judged])

    progress.begin("search")
    names = [layer.name for layer in layers]
    way = _selected(options, partial(judge, names, wide=False), held_out=bool(held_out))
    if options.ranges == BEST:
        notices.append(f"ranges are those of {way.ranges}, which leave most signal to noise")
    chosen = choose(names, options.snr_db, partial(judge, way=way), judge(names, way), progress.part)
    progress.begin("write")
    made = written(chosen.layers, way)
    content = made.bytes()
    put(out, content)
    return QuantizeReport(
        options,
        layers=tuple(_table(network, layers, left, chosen, calibration)),
        outputs=tuple(
            QuantisedOutput(name, _short(db), chosen.fidelity.errors[name])
            for name, db in chosen.fidelity.outputs.items()
        ),
        samples=len(values),
        held_out=len(held_out),
        derived=not samples,
        tensors=sum(node.op_type == "QuantizeLinear" for node in made.nodes),
        bytes=len(content),
        model_bytes=model.stat().st_size,
        notices=tuple(notices),
    )


@dataclass(frozen=True)
class Way:
    """How all layers are quantised: by which method ranges are chosen, and whether biases are corrected."""

    ranges: str
    correct: bool


def _selected(options: QuantizeOptions, judge: Callable[[Way], Fidelity], *, held_out: bool) -> Way:
    """The way that the options permit whose outputs are nearest to fp32.

    First the method is selected, then whether biases are corrected with it, where that is judged on samples held out.
    `judge` is in float32 and the report in float64: rounding a deep model's activations makes them differ by some dB,
    and what is best of several by chance in one is not so in the other.
    """
    methods = TRIED if options.ranges == BEST else (options.ranges,)
    ways = [Way(method, options.bias_correction) for method in methods]
    least = cache(lambda way: judge(way).least)
    best = max(ways, key=least) if len(ways) > 1 else ways[0]
    return max((best, replace(best, correct=False)), key=least) if held_out and best.correct else best


def _schemes(calibration: Calibration, options: QuantizeOptions, method: str) -> dict[str, Affine]:
    dtype = np.uint8 if options.activations == "uint8" else np.int8
    return {
        name: affine(*range_of(observed, method, options.percentile), dtype)
        for name, observed in calibration.observed.items()
    }


def demand_layers(layers: list[Layer | Product], left: list[Left], network: Network, options: QuantizeOptions) -> None:
    """Raises OptionsError where `keep` names no layer, and UnsupportedModel without one that can be quantised."""
    names = {*(one.name for one in layers), *(one.name for one in left)}
    if unknown := [name for name in options.keep if name not in names]:
        raise OptionsError(
            f"keep names {unknown[0]!r:.100}, which is no layer of the model",
            fix=f"its layers are {', '.join(sorted(names)[:8]) or 'none'}",
        )
    if layers:
        return
    reasons = tuple(Refusal(one.reason, "", one.name, network.operator(one.node)) for one in left[:50])
    said = "there is no Conv, ConvTranspose, MatMul or Gemm" if not left else f"none of its {len(left)} layers can be"
    raise UnsupportedModel(
        f"the model has no layer to quantise: {said}",
        fix="compile it as it is, or quantise it with its weights as constants in float32",
        refusals=reasons,
    )


def _demand_same(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    """Raises InternalError where preparing the model changed what it computes."""
    for name, array in wanted.items():
        finite = np.isfinite(array) & np.isfinite(found[name])
        largest = float(np.abs(array).max(initial=0.0, where=finite))
        differences = np.subtract(array, found[name], where=finite, out=np.zeros(array.shape))
        error = float(np.abs(differences).max(initial=0.0))
        if error > CLOSE * max(largest, 1e-30):
            raise InternalError(f"folding weights moved output {name!r:.100} by {error:g} of {largest:g}")


def _table(
    network: Network, layers: list[Layer | Product], left: list[Left], chosen: Chosen, calibration: Calibration
) -> Iterator[QuantisedLayer]:
    by_name = {layer.name: layer for layer in layers}
    reasons = {one.name: one.reason for one in left}
    for node in network.nodes:
        name = named(node)
        if name not in by_name and name not in reasons:
            continue
        layer = by_name.get(name)
        quantised = name in chosen.layers
        costly = "the error budget does not hold with it in int8"
        weights = layer.weights if isinstance(layer, Layer) else network.constant(node.input[1])
        yield QuantisedLayer(
            name,
            network.operator(node),
            weights=None if weights is None else tuple(weights.shape),
            precision="int8" if quantised else "float32",
            reason=None if quantised else reasons.get(name, costly),
            weights_db=_short(calibration.weights_db(name)) if isinstance(layer, Layer) else None,
            outputs_db=_short(chosen.alone.get(name)),
        )


def _short(db: float | None) -> float | None:
    return None if db is None or not np.isfinite(db) else round(db, 2)
