"""One model judged as a stranger's: compiled with what its file leaves open left open, then run beside ONNX Runtime."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.turns import single_threaded
from compiler.contract import CompileOptions, InputSpec
from compiler.errors import CallerError, Disagreement
from compiler.frontend import load
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait
from compiler.pack.loader import InputError, Model, OpenSpec, TensorSpec
from compiler.pipeline import compile_model
from compiler.preflight import preflight
from compiler.prove.inputs import sample_inputs
from compiler.request import Request

AGREES, CORRECTED, ALONE, REFUSED, DIFFERS, CRASHED = STATUSES = (
    "agrees",
    "corrected",
    "alone",
    "refused",
    "differs",
    "crashed",
)
DRAWN = 2
"""Sizes in the ranges, beside the most usual, the least and the greatest ones."""
CLOSE, CLOSE_IN_BYTES = 2e-3, 2e-2
"""How far an output may be from ONNX Runtime's, relative to its largest value; the second for models with integer
products or quantised values, where a rounding that falls to the other side is a whole step."""
IN_BYTES = having(Trait.QUANTISED)
LEAST = 1e-3
"""What the largest value of an output counts as at least: ONNX Runtime's sigmoid of -20 is off by all of its value."""
REASON_CHARS = 300


@dataclass(frozen=True)
class Verdict:
    """What became of a model.

    agrees     compiled without options, and every output at every size is near ONNX Runtime's
    corrected  the same, with the options that preflight wrote after a refusal
    alone      the same, but ONNX Runtime does not load the model: the artifact agreed with the compiler's own reference
    refused    the compiler takes it under neither; `reason` is of the options that nobody gave
    differs    an output is not near, or the artifact did not agree with the compiler's own reference
    crashed    anything else: an internal error, the death of the process, the time limit

    `took` is what the dimensions were compiled for, `sizes` how many sets of them were compared, `distance` the largest
    one, `seconds` processor time of the compilation with its C compilers, and `bytes` the most memory that the process
    held.
    """

    model: str
    status: str
    reason: str = ""
    took: str = ""
    sizes: int = 0
    distance: float = 0.0
    seconds: float = 0.0
    bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)


def judge(file: Path, budget_s: float) -> Verdict:
    """Compiles a model, runs it at several sizes and compares; one lane, `budget_s` of tuning."""
    try:
        try:
            return _compared(file, CompileOptions(threads=1, tuning_budget_s=budget_s), AGREES)
        except CallerError as error:
            refused, corrected = error, preflight(file, CompileOptions())["corrected"]
        if corrected is None:
            return Verdict(file.stem, REFUSED, _reasons(refused))
        try:
            options = CompileOptions.from_json({**corrected, "threads": 1, "tuning_budget_s": budget_s})
            return _compared(file, options, CORRECTED, _reasons(refused))
        except CallerError:
            return Verdict(file.stem, REFUSED, _reasons(refused))
    except Disagreement as error:
        return Verdict(file.stem, DIFFERS, _line(error))
    except Exception as error:
        return Verdict(file.stem, CRASHED, f"{type(error).__name__}: {_line(error)}")


def _compared(file: Path, options: CompileOptions, status: str, reason: str = "") -> Verdict:
    with tempfile.TemporaryDirectory(prefix="tilewright-real-") as folder:
        artifact = Path(folder) / "model.tw"
        before = _processor_seconds()
        compile_model(Request(file, artifact, options))
        seconds = _processor_seconds() - before
        with Model(artifact, lanes=1) as loaded:
            took = "; ".join(str(spec) for spec in loaded.bindings[-1].inputs)
            try:
                peer = single_threaded(file)
            except Exception as error:  # of a class of its own for each way in which it fails
                return Verdict(file.stem, ALONE, f"{reason} {_line(error)}".strip(), took, seconds=round(seconds, 1))
            found = list(_distances(peer, loaded, partial(_drawn, file, options)))
    worst, where = max(found, key=lambda one: one[0])
    if not worst <= _close(file):
        status, reason = DIFFERS, f"{worst:.1e} of the largest value from ONNX Runtime at {where or 'its shapes'}"
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Verdict(file.stem, status, reason, took, len(found), worst, round(seconds, 1), held)


def _distances(
    peer: Any, loaded: Model, drawn: Callable[[Sequence[TensorSpec], int], Mapping[str, np.ndarray]]
) -> Iterator[tuple[float, str]]:
    """How far outputs are from those of a session of ONNX Runtime, and at which sizes, for each set of sizes."""
    names = [output.name for output in peer.get_outputs()]
    taken = {entry.name for entry in peer.get_inputs()}
    for seed, (number, sizes) in enumerate(_sizes(loaded)):
        one = loaded.at(number)
        specs = [spec.at(sizes) if isinstance(spec, OpenSpec) else spec for spec in one.inputs]
        inputs = one.random_inputs(seed, sizes) if one.binding.has_strings else drawn(specs, seed)
        try:
            found = loaded.run(inputs)
        except InputError:  # the range permits less than these sizes alone do, and the artifact has examples
            inputs = one.random_inputs(seed, sizes)
            found = loaded.run(inputs)
        right = peer.run(names, {name: value for name, value in inputs.items() if name in taken})
        distance = max(
            distance_of(array, _output(found, name, place))
            for name, given in zip(names, right, strict=True)
            for place, array in enumerate(given if isinstance(given, list) else [given])
        )
        yield distance, ", ".join(f"{name}={size}" for name, size in sizes.items())


def _drawn(file: Path, options: CompileOptions, specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Inputs of these shapes, in the ranges that the model demands of them at these: indices fit what they index."""
    shapes = {spec.name: InputSpec(shape=spec.shape) for spec in specs}
    exact = load(file, replace(options, dims={}, inputs={**options.inputs, **shapes}), OPERATORS)
    found = sample_inputs(exact.graph, seed, exact.open_shapes)
    names = {exact.graph.values[id].name: array for id, array in found.items()}
    return {spec.name: names[spec.name] for spec in specs}


def _output(found: Mapping[str, np.ndarray], name: str, place: int) -> np.ndarray:
    """An output of the artifact; a sequence's elements are its own, by their place."""
    return found[name] if name in found else found[f"{name}.{place}"]


def _sizes(loaded: Model) -> Iterator[tuple[int, dict[str, int]]]:
    """Numbers of bindings, each with sizes for what it leaves open."""
    for one in loaded.bindings:
        if not one.open:
            yield one.number, {}
            continue
        yield one.number, {axis.name: axis.opt for axis in one.open}
        yield one.number, {axis.name: axis.low for axis in one.open}
        yield one.number, {axis.name: axis.high for axis in one.open}
        random = np.random.default_rng(one.number)
        for _ in range(DRAWN):
            yield (
                one.number,
                {
                    axis.name: int(random.integers(-(-axis.low // axis.step), axis.high // axis.step + 1)) * axis.step
                    for axis in one.open
                },
            )


def distance_of(right: Any, found: Any) -> float:
    """The largest difference of two arrays, relative to the largest value of the first, but to LEAST at least.

    Infinite where shapes differ, or where one has a NaN or an infinity and the other another number.
    """
    right, found = np.asarray(right), np.asarray(found)
    if right.shape != found.shape:
        return float("inf")
    if right.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(right.astype(str), found.astype(str)) else float("inf")
    wanted, given = right.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.array_equal(wanted[~finite], given[~finite], equal_nan=True):
        return float("inf")
    wanted, given = wanted[finite], given[finite]
    if not np.isfinite(given).all():
        return float("inf")
    return float(np.abs(wanted - given).max(initial=0) / max(np.abs(wanted).max(initial=0), LEAST))


def _close(file: Path) -> float:
    graph = onnx.load(str(file), load_external_data=False).graph
    return CLOSE_IN_BYTES if any(node.op_type in IN_BYTES for node in graph.node) else CLOSE


def _processor_seconds() -> float:
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in each)


def _reasons(error: CallerError) -> str:
    reasons: Sequence[str] = [f"{one.operator}: {one.reason}" for one in error.refusals] or [error.message]
    return f"{error.code}: " + "; ".join(dict.fromkeys(reasons))[:REASON_CHARS]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_CHARS]
