"""A model in fp32 and samples to the same model with weights of a form, with a table of its layers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.compress.clusters import Clusterer
from compiler.compress.evaluate import Deviation, Samples
from compiler.compress.factors import Factorer, rank_of
from compiler.compress.forms import CODEBOOK, LOW_RANK, Form, levels_of, obstacle, words_of
from compiler.compress.gram import gram, grams
from compiler.compress.layers import Layer, layers_of
from compiler.compress.parts import divide, parts_of
from compiler.compress.prune import Change, Matrices, Pruner
from compiler.compress.report import CompressedLayer, CompressedOutput, CompressReport, CurvePoint, LayerLevel
from compiler.compress.times import Taken, Times
from compiler.contract import CompileOptions, CompressOptions, Event
from compiler.encodings.low_rank import Factors
from compiler.errors import BudgetMissed, InputsError, Refusal, UnsupportedModel
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import Left, Network, named, open_network
from compiler.quantize.progress import Progress, put
from compiler.quantize.samples import derived, given, shaped
from compiler.trace import Observer, StopRequest, ignore, never_stops
from compiler.tuning.knapsack import Choice, Frontier, Option

BEGINS = {"load": 0.0, "calibrate": 0.02, "weights": 0.1, "time": 0.5, "search": 0.85, "write": 0.97}
"""The steps as events name them, with the part of the whole at which each begins."""
OLDEST_OPSET = 7
HELD_OUT = 4
"""One of so many samples is held out."""
JUDGED, MOST_HELD_OUT = 2, 4
"""Samples that a layer by itself is judged on, and that are held out, at most."""
POINTS, FEWEST_POINTS = 10, 6
"""Of the trade-off curve: about, and where there are so many."""
STEPS_BACK = 24
CAREFUL = 0.9
"""What of the error that a sum should have had it is allowed after the whole had more."""
CHECK = (
    "outputs were compared with those of the dense model: what that does to the accuracy on your task only a test on "
    "your own data can tell"
)
DERIVED = (
    "no samples were given: weights were {done} by random inputs, which are seldom like real ones. "
    "Give some tens of real inputs as .npz"
)


@dataclass(frozen=True)
class _Changed:
    """One layer at one share of what its form saves. `error`: of the whole network where nothing else is changed.

    `saved` are the weights that are zero, as many as have the bits that indices save, or that factors have fewer.
    `weights` are the product of `factors`, which a layer of low rank has.
    """

    share: float
    weights: np.ndarray
    error: float
    saved: int
    factors: Factors | None = None

    @property
    def rank(self) -> int | None:
        """Of a layer of low rank."""
        return None if self.factors is None else self.factors.rank


@dataclass(frozen=True)
class _Level(_Changed):
    """The same with what it takes."""

    taken: Taken = field(kw_only=True)


def compress(
    model: Path,
    out: Path,
    options: CompressOptions,
    samples: Mapping[str, Path] | None = None,
    observe: Observer = ignore,
    data: Mapping[str, Path] | None = None,
    *,
    records: Sequence[Mapping[str, Any]] = (),
    stop_requested: StopRequest = never_stops,
    measure: bool = True,
) -> CompressReport:
    """Writes a model with weights of a form to `out`, which appears whole, and returns what became of each layer.

    A level for each layer is found by dynamic programming (`compiler.tuning.knapsack`) under two assumptions: that
    times of layers add up, and that the squares of their relative errors do, as those of independent changes would.
    The first gives a predicted time; the second is checked by running the whole on held-out samples, and where the
    error found is above the budget the sum is held lower until it is not.

    Raises UnsupportedModel where no layer can have the form, or weights are not finite; InputsError for samples that do
    not fit, are not finite, or are fewer than two; BudgetMissed where the aim cannot be reached; and what the front end
    and the tile search raise.
    """
    progress = Progress(observe, BEGINS)
    progress.begin("load")
    read, network = open_network(model, data, OLDEST_OPSET)
    values = given(read, samples, options) if samples else derived(model, options, data)
    if len(values) < 2:
        raise InputsError("only one sample is given", fix="give at least two: one is held out to evaluate the result")
    words = words_of(options.form)
    notices = [CHECK] if samples else [CHECK, DERIVED.format(done=words.done)]
    for notice in notices:
        progress.notice(notice)
    held = min(max(1, len(values) // HELD_OUT), MOST_HELD_OUT)
    evaluated = Evaluated(model, options, data)
    graph = evaluated.loaded(values[0]).graph
    layers, left = _formed(network, *layers_of(network, graph, options.keep, ends=options.ends), options)
    progress.begin("calibrate")
    calibrated = Samples(network, evaluated, values[:-held])
    judged = Samples(network, evaluated, values[:-held][:JUDGED])
    unseen = Samples(network, evaluated, values[-held:])
    plain = shaped(options, values[0])
    timing = options.timing()

    def on_record(record: Mapping[str, Any]) -> None:
        observe(Event("record", "time", BEGINS["time"], "", record))

    progress.begin("weights")
    found = [_changed(layer, layers, calibrated, judged, options, at, progress) for at, layer in enumerate(layers)]
    progress.begin("time")
    with tempfile.TemporaryDirectory(prefix="tilewright-compress-", dir=out.parent) as folder:
        share = options.tuning_budget_s / max(1, sum(len(one) for one in found))
        budgeted = _with(timing, tuning_budget_s=share)
        times = Times(
            budgeted, Path(folder), records, measure=measure, on_record=on_record, stop_requested=stop_requested
        )
        # Before the layers, whose dense times are then known: what else it takes is no difference of measurements.
        whole = _with(budgeted, inputs=plain.inputs, dims=plain.dims, tuning_budget_s=10 * share)
        dense_s = times.of_model(model, whole, values[:1], data).seconds
        levels = []
        for at, (layer, changed) in enumerate(zip(layers, found, strict=True)):
            x = calibrated.inputs(layer)[0].shape
            levels.append([_timed(times, layer, x, one) for one in changed])
            progress.part((at + 1) / len(layers), f"{layer.name}: {_said(levels[-1])}")
    progress.begin("search")
    search = _Search(layers, levels, dense_s, unseen, options.form)
    choice, deviation = search.found(options)
    curve = search.curve()
    progress.begin("write")
    rows = _table(network, layers, left, levels, choice)
    for layer, one in zip(layers, search.picked(choice), strict=True):
        if one.share:
            _give(network, layer, one)
    content = network.bytes()
    put(out, content)
    size = sum(layer.weights.size for layer in layers)
    return CompressReport(
        options,
        layers=rows,
        curve=curve,
        saved=words.saved,
        sparsity=round(search.saved(choice) / size, 4),
        dense_ms=_ms(dense_s),
        predicted_ms=_ms(search.seconds(choice)),
        error=_short(deviation.worst),
        expected_error=_short(search.expected(choice)),
        outputs=tuple(
            CompressedOutput(name, _short(error), deviation.agree.get(name))
            for name, error in deviation.relative.items()
        ),
        samples=len(values) - held,
        held_out=held,
        derived=not samples,
        bytes=len(content),
        model_bytes=model.stat().st_size,
        notices=tuple(notices),
    )


class _Search:
    """Choices of a level for each layer, and what becomes of the whole."""

    def __init__(
        self,
        layers: Sequence[Layer],
        levels: list[list[_Level]],
        dense_s: float,
        unseen: Samples,
        form: Form,
    ) -> None:
        self.layers, self.levels, self.dense_s, self.unseen = layers, levels, dense_s, unseen
        self.words = words_of(form)
        self._fixed = dense_s - sum(each[0].taken.seconds for each in levels)
        self._judged: dict[tuple[int, ...], Deviation] = {}
        self.by_time = self._frontier(lambda one: one.taken.seconds)
        self.by_saved = self._frontier(lambda one: float(one.weights.size - one.saved))
        self.wanted = self.by_saved if form == CODEBOOK else self.by_time

    def _frontier(self, cost: Callable[[_Level], float]) -> Frontier:
        return Frontier([[Option(cost(one), one.error**2) for one in each] for each in self.levels])

    def found(self, options: CompressOptions) -> tuple[Choice, Deviation]:
        """What was asked for. Raises BudgetMissed where there is no such choice."""
        if options.largest_error is not None:
            return self._within(options.largest_error)
        if options.latency_ms is not None:
            choice = self.by_time.nearest(1e-3 * options.latency_ms - self._fixed)
            fastest = self.by_time.choice(len(self.by_time) - 1)
            reached = f"{_ms(self.seconds(fastest)):g} ms, of {_ms(self.dense_s):g}"
            least = f"{options.latency_ms:g} ms cannot be reached"
        else:
            assert options.sparsity is not None, "one of the aims is given"
            size = sum(layer.weights.size for layer in self.layers)
            choice = self.by_saved.nearest((1 - options.sparsity) * size + 0.5)
            reached = f"{self.saved(self.by_saved.choice(len(self.by_saved) - 1)) / size:.3f}"
            least = f"a share of {options.sparsity:g} {self.words.saved} cannot be reached"
        if choice is None:
            raise BudgetMissed(
                f"{least}: all layers at their most reach {reached}",
                fix="ask for less, take another form, or give `ends` to take the first and last layers too",
            )
        return choice, self.judge(choice)

    def _within(self, largest: float) -> tuple[Choice, Deviation]:
        """The fastest, or with codebooks the smallest, whose error on held-out samples is at most this.

        The sum is held lower until that is so.
        """
        wanted = largest
        for _ in range(STEPS_BACK):
            choice = self.wanted.cheapest(wanted**2)
            deviation = self.judge(choice)
            if deviation.worst <= largest:
                break
            wanted *= max(0.25, CAREFUL * largest / deviation.worst)
        if deviation.worst > largest or not self.saved(choice):
            raise BudgetMissed(
                f"no layer can be {self.words.done} to advantage so that outputs are within {largest:g} of the dense",
                fix="allow a larger error, take another form, or give samples that are like real inputs",
                details={
                    "alone": {
                        layer.name: _short(min((one.error for one in each[1:]), default=0.0))
                        for layer, each in zip(self.layers, self.levels, strict=True)
                    }
                },
            )
        return choice, deviation

    def judge(self, choice: Choice) -> Deviation:
        """The whole on held-out samples."""
        if choice.levels not in self._judged:
            self._judged[choice.levels] = self.unseen.deviation(self.weights(choice), self.layers)
        return self._judged[choice.levels]

    def picked(self, choice: Choice) -> list[_Level]:
        """The level of each layer."""
        return [each[at] for each, at in zip(self.levels, choice.levels, strict=True)]

    def weights(self, choice: Choice) -> dict[str, np.ndarray]:
        """By layer, of those that are changed."""
        both = zip(self.layers, self.picked(choice), strict=True)
        return {layer.name: one.weights for layer, one in both if one.share}

    def seconds(self, choice: Choice) -> float:
        """Predicted: what the layers do not take does not change."""
        return self._fixed + sum(one.taken.seconds for one in self.picked(choice))

    def expected(self, choice: Choice) -> float:
        """The error that the whole would have if squares added up."""
        return float(np.sqrt(sum(one.error**2 for one in self.picked(choice))))

    def saved(self, choice: Choice) -> int:
        """Of all weights that may be changed."""
        return sum(one.saved for one in self.picked(choice))

    def curve(self) -> tuple[CurvePoint, ...]:
        """Points of the trade-off between error and time, or zeros where time hardly depends on these."""
        size = sum(layer.weights.size for layer in self.layers)
        return tuple(
            CurvePoint(
                round(self.saved(one) / size, 4),
                _ms(self.seconds(one)),
                expected_error=_short(self.expected(one)),
                error=_short(self.judge(one).worst),
            )
            for one in (self.wanted if len(self.wanted) >= FEWEST_POINTS else self.by_saved).spread(POINTS)
        )


def _obstacle(layer: Layer, form: Form) -> str | None:
    """Why a layer's weights cannot have a form; None where they can."""
    if form != LOW_RANK:
        return obstacle(form, layer.weights.shape[layer.axis], layer.depth)
    if layer.recurs:
        return "it is recurrent: its weights are not factored"
    rows, columns = layer.rows(layer.weights).shape
    if not rank_of(rows, columns, levels_of(form)[1]):
        return f"it has {rows} results by {columns} products: factors of rank 1 save less than half"
    return None


def _formed(
    network: Network, layers: list[Layer], left: list[Left], options: CompressOptions
) -> tuple[list[Layer], list[Left]]:
    """Without the layers whose weights cannot have the form."""
    kept: list[Layer] = []
    for layer in layers:
        reason = _obstacle(layer, options.form)
        if reason is None:
            kept.append(layer)
        else:
            left.append(Left(layer.node, reason))
    if not kept:
        raise UnsupportedModel(
            f"no layer's weights can have the form {options.form}",
            fix="take another form: unstructured fits every layer",
            refusals=tuple(Refusal(one.reason, "", one.name, network.operator(one.node)) for one in left[:50]),
        )
    return kept, left


def _changed(
    layer: Layer,
    layers: Sequence[Layer],
    calibrated: Samples,
    judged: Samples,
    options: CompressOptions,
    at: int,
    progress: Progress,
) -> list[_Changed]:
    """A layer at each level, with the error of the whole where it alone is changed."""
    own = grams(layer, calibrated.around(layer)) if layer.recurs else [gram(layer, calibrated.inputs(layer))]
    each = _factored(layer, own[0], options) if options.form == LOW_RANK else _replaced(layer, own, options)
    found = [_Changed(0.0, layer.weights, 0.0, 0)]
    for share, weights, saved, factors in each:
        error = judged.deviation({layer.name: weights}, layers).worst
        found.append(_Changed(share, weights, error, saved, factors))
    last = found[-1]
    progress.part((at + 1) / len(layers), f"{layer.name}: error {last.error:.3g} at {last.share:.0%}")
    return found


_Made = tuple[float, np.ndarray, int, Factors | None]
"""A share, the weights, how many of them are saved, and their factors."""


def _replaced(layer: Layer, own: Sequence[np.ndarray], options: CompressOptions) -> Iterator[_Made]:
    """Other weights at each share of zeros, or of bits saved."""

    def change(weights: np.ndarray, products: np.ndarray) -> Change:
        if options.form == CODEBOOK:
            return Clusterer(weights, products, options.method)
        return Pruner(weights, products, options.method, options.form)

    pruner = Matrices(layer.rows(layer.weights), own, change)
    for share in levels_of(options.form)[1:]:
        weights = layer.shaped(pruner.at(share))
        zeros = weights.size - int(np.count_nonzero(weights))
        yield share, weights, int(share * weights.size) if options.form == CODEBOOK else zeros, None


def _factored(layer: Layer, products: np.ndarray, options: CompressOptions) -> Iterator[_Made]:
    """Factors of each rank that levels allow."""
    rows = layer.rows(layer.weights)
    factorer = Factorer(rows, products, options.method)
    last = 0
    for share in levels_of(options.form)[1:]:
        rank = rank_of(len(rows), rows.shape[1], share)
        if rank not in (0, last):
            last, factors = rank, factorer.at(rank)
            saved = rows.size - factors.elements
            yield saved / rows.size, layer.shaped(factors.u @ factors.v), saved, factors


def _timed(times: Times, layer: Layer, x: tuple[int, ...], one: _Changed) -> _Level:
    taken = times.of_layer(layer, x, parts_of(layer, one.weights, one.factors))
    return _Level(one.share, one.weights, one.error, one.saved, one.factors, taken=taken)


def _give(network: Network, layer: Layer, one: _Level) -> None:
    """Puts weights in the place of a layer's own; those behind an Identity or a Transpose become its own."""
    if one.factors is not None:
        divide(network, layer, one.factors)
        return
    node = layer.node
    for at, own in layer.inputs(one.weights).items():
        if node.input[at] in network.constants:
            network.constants[node.input[at]] = own
        else:
            node.input[at] = network.add_constant(f"{node.input[at]}_compressed", own)
            network.look()


def _table(
    network: Network, layers: Sequence[Layer], left: Sequence[Left], levels: list[list[_Level]], choice: Choice
) -> tuple[CompressedLayer, ...]:
    reasons = {one.name: one.reason for one in left}
    by_name = {layer.name: at for at, layer in enumerate(layers)}
    rows = []
    for node in network.nodes:
        name = named(node)
        if name not in by_name and name not in reasons:
            continue
        at = by_name.get(name)
        weights = network.constant(node.input[1]) if at is None else layers[at].weights
        shape = None if weights is None else tuple(weights.shape)
        row = CompressedLayer(name, network.operator(node), shape, 0.0, reasons.get(name))
        if at is not None:
            one = levels[at][choice.levels[at]]
            row = replace(
                row,
                sparsity=round(one.saved / one.weights.size, 4),
                reason=None if one.share else "what it costs in error is more than it saves",
                rank=one.rank,
                error=_short(one.error),
                dense_us=_us(levels[at][0]),
                us=_us(one),
                source=one.taken.source,
                levels=tuple(
                    LayerLevel(round(each.share, 4), each.rank, _short(each.error), _us(each)) for each in levels[at]
                ),
            )
        rows.append(row)
    return tuple(rows)


def _with(options: CompileOptions, **changed: Any) -> CompileOptions:
    return CompileOptions.from_json({**options.to_json(), **changed})


def _said(levels: Sequence[_Level]) -> str:
    return f"{_us(levels[0]):g} us dense, {_us(min(levels, key=lambda one: one.taken.seconds)):g} us at best"


def _us(one: _Level) -> float:
    return round(1e6 * one.taken.seconds, 3)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 6)


def _short(error: float) -> float | None:
    """None for one that is not finite."""
    return float(f"{error:.6g}") if np.isfinite(error) else None
