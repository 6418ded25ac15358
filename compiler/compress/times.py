"""What a layer takes at each level: its kernels' times by the tile search, in a model of the layer alone.

Nothing is emitted: times are those of the search's best tiles, measured, from records, or by the cost model where the
budget is spent. Layers of equal shape and equal zeros share a time, and so do those of equal rank. In precision int8
they are those of the layer in bytes, and of the whole once it is quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.compress.alone import model_of, stored
from compiler.compress.layers import Layer
from compiler.compress.parts import Part
from compiler.contract import CompileOptions, QuantizeOptions
from compiler.contract.kinds import AUTO
from compiler.encodings import find
from compiler.encodings.encoding import Use
from compiler.pipeline import front_of
from compiler.quantize import quantize
from compiler.quantize.samples import Sample
from compiler.request import Host, Request
from compiler.session import Session
from compiler.steps.tiling.step import roundings, tile_kernels
from compiler.trace import StopRequest, Trace, never_stops


@dataclass(frozen=True)
class Taken:
    """Seconds, and from where: `measured` where all kernels' were, else `model`."""

    seconds: float
    source: str


class Times:
    """Times of layers and models on one target, in the precision of the options."""

    def __init__(
        self,
        options: CompileOptions,
        folder: Path,
        records: Iterable[Mapping[str, Any]] = (),
        *,
        measure: bool = True,
        on_record: Callable[[Mapping[str, Any]], None] = lambda record: None,
        stop_requested: StopRequest = never_stops,
    ) -> None:
        self.options, self.folder, self.measure = options, folder, measure
        self.in_bytes = options.precision == "int8"
        self.on_record, self.stop_requested = on_record, stop_requested
        self.records: list[Mapping[str, Any]] = [*records]
        self._known: dict[tuple[object, ...], Taken] = {}

    def of_layer(self, layer: Layer, x: tuple[int, ...], parts: Sequence[Part]) -> Taken:
        """Of a layer as these parts on an input of this shape."""
        told = tuple(self._told(layer, part) for part in parts)
        key = (layer.node.op_type, len(layer.node.input), x, told)
        if key not in self._known:
            file = self.folder / "layer.onnx"
            file.write_bytes(model_of(layer, x, parts, in_bytes=self.in_bytes))
            self._known[key] = self._of_file(file, self.options)
        return self._known[key]

    def _told(self, layer: Layer, part: Part) -> tuple[object, ...]:
        """What is the same of parts that take as long as each other."""
        attributes = tuple(sorted(one.SerializeToString() for one in part.attributes))
        return part.operator, attributes, part.weights.shape, self._words(layer, part)

    def _words(self, layer: Layer, part: Part) -> tuple[str, ...]:
        """What a part's workload says of its zeros, and of values that its weights share."""
        if layer.recurs:
            each = layer.inputs(part.weights).values()
            return tuple("".join(map(str, find(one, Use.RECURRENCE))) for one in each)
        constant = stored(part, in_bytes=self.in_bytes)
        product = Use.BF16_PRODUCT if self.options.precision in ("bf16", AUTO) else Use.PRODUCT
        return tuple(map(str, (*find(constant, product), *find(constant, Use.GEMV))))

    def of_model(
        self, file: Path, options: CompileOptions, samples: Sequence[Sample], data: Mapping[str, Path] | None = None
    ) -> Taken:
        """The sum over the kernels of a model in fp32; in precision int8 it is quantised on the samples first."""
        if not self.in_bytes:
            return self._of_file(file, options, data)
        whole = self.folder / "whole.onnx"
        quantize(file, whole, QuantizeOptions(), samples, data=data)
        return self._of_file(whole, options)

    def _of_file(self, file: Path, options: CompileOptions, data: Mapping[str, Path] | None = None) -> Taken:
        """The sum over the kernels of a model as it is."""
        options = replace(options, precision=options.arithmetic)
        trace = Trace(self._observed)
        host = Host(self.records, stop_requested=self.stop_requested, measure=self.measure)
        session = Session.of(options, host, trace, self.folder)
        front = front_of(session, Request(file, self.folder / "never.tw", options, data))
        rounding, _ = roundings(session)
        kernels = session.backend.stored(front.fused.kernels, rounding.precision)
        tiles = tile_kernels(session, kernels, front.evaluated.kernels, rounding.tolerance, rounding.precision)
        costs = [menu.best.cost for menu in tiles.settled.menus if menu.variants]
        source = "model" if any(cost.is_modelled for cost in costs) else "measured"
        return Taken(sum(cost.seconds for cost in costs), source)

    def _observed(self, event: Any) -> None:
        if event.kind == "record":
            self.records.append(event.data)
            self.on_record(event.data)
