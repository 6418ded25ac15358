"""The probe of an artifact: what a loader runs once on each machine, and the bands that results have there.

Its inputs follow from a rule that the loader has too, so that they need no room; the bands are of the float64
reference, and hold for each program of the model, whatever the machine that it is compiled for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.ir.border import RANDOM_STATE
from compiler.ir.graph import Graph, Value
from compiler.ir.open_shapes import OpenShapes
from compiler.pack.loader.bindings import _bindings
from compiler.pack.loader.probe import _measures, _places, _probe_inputs
from compiler.prove.agree import named
from compiler.prove.inputs import ends_of_integers

MOST_BYTES = 4096
"""Of a probe, as JSON."""
VALUES = 16
"""Elements of an output that a band has, at most."""
MOST_OUTPUTS = 64
"""That have bands; the first ones."""
WIDTH = 2.0
"""Of a band, in tolerances: another machine may round otherwise than that on which the artifact agreed."""
EQUAL_FROM = 8
"""Whole numbers that are compared, from which on one of them may differ, as one that wins by a hair does."""


def drawn_probe(
    manifest: Mapping[str, Any],
    graph: Graph,
    shapes: OpenShapes | None,
    sizes: Mapping[str, int],
    fixed: Mapping[int, np.ndarray],
    seed: int,
) -> tuple[Mapping[str, Any], dict[int, np.ndarray]]:
    """The rule of a probe, and its inputs by value id of a graph that the program of a manifest is judged by.

    `sizes` are those of dimensions that the program leaves open, `fixed` inputs of the program, by number, that the
    graph has not.
    """
    (binding,) = _bindings(manifest)
    names = [spec.name for spec in binding.coded.inputs]
    own: dict[str, dict[str, Any]] = {names[number]: {"examples": [array.tolist()]} for number, array in fixed.items()}
    free = [name for name in names if name not in own]
    examples = dict(shapes.examples) if shapes else {}
    for number, (name, (low, high)) in enumerate(zip(free, ends_of_integers(graph), strict=False)):
        if name == RANDOM_STATE:
            own[name] = {"examples": [[seed, 1]]}
        elif number in examples:
            own[name] = {"examples": [[*examples[number][seed % len(examples[number])]]]}
        elif math.isfinite(high):
            own[name] = {"range": [low, high]}
    rule = {"seed": seed, **({"sizes": dict(sizes)} if sizes else {}), "inputs": own}
    arrays = dict(zip(names, _probe_inputs(binding, manifest["inputs"], rule), strict=True))
    inputs = [arrays[name] for name in free]
    typed = zip(graph.inputs, inputs, strict=True)
    return rule, {value: array.view(graph.type(value).dtype.numpy) for value, array in typed}


def with_bands(
    rule: Mapping[str, Any],
    outputs: Sequence[Value],
    want: Sequence[np.ndarray],
    decided: Container[str],
    tolerance: float,
) -> Mapping[str, Any]:
    """The probe of a rule, whose outputs the reference says are these, and which was `decided` of the outputs named.

    Where they are many, less is kept of each, or nothing of the last.
    """
    count, most = VALUES, MOST_OUTPUTS
    while True:
        bands = [
            _band(number, value, array, tolerance, count) if named(value) in decided else None
            for number, (value, array) in enumerate(zip(outputs[:most], want, strict=False))
        ]
        probe = {**rule, "outputs": bands}
        if most == 0 or len(json.dumps(probe)) <= MOST_BYTES:
            return probe
        count, most = (count // 2, most) if count > 1 else (count, most // 2)


def _band(number: int, value: Value, want: np.ndarray, tolerance: float, count: int) -> Mapping[str, Any] | None:
    """None for an output of no elements, and of small types: they are codes, of which neighbours may both be right."""
    dtype, flat = value.type.dtype, np.ascontiguousarray(want).reshape(-1)
    if not flat.size or dtype.is_small:
        return None
    places = _places(number, flat.size, count)
    if not dtype.is_float:
        may_differ = math.ceil(2 * WIDTH * tolerance * len(places)) if flat.size >= EQUAL_FROM else 0
        exact = flat.astype(dtype.numpy)
        return {"size": flat.size, "unequal": may_differ, "values": [exact[at].item() for at in places]}
    with np.errstate(over="ignore"):
        flat = np.where(np.isfinite(flat.astype(dtype.numpy).astype(np.float64)), flat, np.nan).astype(np.float64)
    finite, least, greatest, means = _measures(flat)
    largest = max(abs(least), abs(greatest))
    scale = largest if largest >= float(np.finfo(np.float32).tiny) else 1.0
    return {
        "size": flat.size,
        "within": _short(WIDTH * tolerance * scale, 3),
        **({} if finite == flat.size else {"finite": finite}),
        "least": _short(least),
        "greatest": _short(greatest),
        "means": [*map(_short, means)],
        "values": [_short(float(flat[at])) if np.isfinite(flat[at]) else None for at in places],
    }


def _short(number: float, digits: int = 9) -> float:
    return float(f"{number:.{digits}g}")
