"""Predict where a model's parts would run on a described platform, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions, Event, PlaceOptions
from compiler.contract.platform import parse_platform
from compiler.platforms.drawing import svg
from compiler.platforms.predict import load_graph, predict, to_json

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report, with a drawing of lanes, messages and the curve as `svg`."""
    (_, model), *data = spec.inputs
    options = PlaceOptions.from_json(spec.options)
    platform = parse_platform(options.platform)
    outbox.event(Event("phase", "load", 0.0))
    graph = load_graph(model, CompileOptions(inputs=options.inputs, dims=options.dims), dict(data))
    outbox.event(Event("phase", "search", 0.1))
    found = predict(graph, platform, spec.scratch, options.objective, tuple(options.carry.items()))
    return {**to_json(found), "svg": svg(found)}
