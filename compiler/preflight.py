"""What compiling a model would take and what would be refused, found within a second and without compiling it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.contract import CompileOptions, kinds
from compiler.devices.kinds import kind_of, resolve
from compiler.disabled import enabled_passes, known
from compiler.errors import (
    InternalError,
    OptionsError,
    Refusal,
    ResourceExhausted,
    TargetUnavailable,
    TilewrightError,
    UnsupportedModel,
)
from compiler.frontend import Survey, Use, survey
from compiler.frontend.correct import correct
from compiler.frontend.model import Input
from compiler.ir.expr import Apply, Expr
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Kernel
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.prove.effort import Effort, reference_effort
from compiler.steps.foreseeing import proof_notices, proof_problem

COMPILE_BASE_BYTES = 448 << 20
"""The compiler itself, and two C compiler processes."""
RUN_BASE_BYTES = 8 << 20
"""The loader, the code and its threads."""
COMPILE_WEIGHTS, COMPILE_ACTIVATIONS = 6, 16
"""Copies held at once: in the file, in memory, folded, packed, and twice as wide for the float64 reference, which keeps
more than what is alive. Fitted to what compiling SqueezeNet and ResNet-18 took."""

GFLOP_COUNTS = (
    "billions of operations, 2 for each multiply-accumulate of convolutions, matrix products and recurrences, "
    "taps on padding included; element-wise work, pooling and normalisation are not counted"
)


def preflight(model: Path, options: CompileOptions, data: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """What would become of a model, as plain JSON. Raises nothing for any model.

    `data` says where all external data lies, by its path in the model; None: beside the model.

    ok               whether the model would be compiled as asked
    problem          why not: `TilewrightError.to_json` of the first thing in the way, else null
    nodes            operators called in the file, dead ones not counted
    operators        for each: `operator`, `domain`, `count`, `verdict` (`supported` or `refused`), `reasons` and
                     `fixes` (without repetition), `nodes` (the first few by name), `unchecked` (calls of which only the
                     name was looked at, because they read what a refused call makes)
    refusals         all of them: `reason`, `fix`, `node`, `operator`
    inputs           `name`, `dtype`, `shape` (ints, names of symbolic dimensions, null where the file says nothing;
                     null for an unknown rank), `bound` (whether the options leave nothing open)
    outputs          `name`, `dtype`, `shape`; as inference finds them, else as the file declares them, with dtype null
    parameters       elements of the file's tensors that are read
    weight_bytes     their bytes
    activation_bytes peak of all other tensors alive at once, inputs and outputs included, if no two nodes were fused;
    null
                     unless every node is supported
    gflop            `value` (null unless every node is supported) and what it `counts`
    proof            estimates of one evaluation of the float64 reference, by which the artifact is proved: wall
                     `seconds`, `bytes` of memory; null unless every node is supported
    memory_bytes     estimates of resident memory: `compile`, `run`; null unless every node is supported
    notices          what the user should know
    corrected        options under which no option and no dimension is in the way; null when those given are so
    target           `name` of the profile that the target stands for on this machine, or null and the `reason`; for an
                     accelerator's kind alone (`cuda`) this name itself: only a worker that holds one can say what it
                     is

    Nodes are judged under the corrected options, so that a model with open dimensions has its verdicts too. Of options
    for several bindings the one with the largest dimensions is judged, and all are corrected.
    """
    target, chosen = _target(options)
    chosen = replace(chosen, without=tuple(name for name in chosen.without if name in known()))
    judged = _largest(options)
    try:
        found = survey(model, replace(chosen, dims=judged.dims), OPERATORS, data)
        return _answer(found, judged, target) | {"corrected": _corrected(found, options)}
    except TilewrightError as error:
        return _unread(error, target)
    except MemoryError:
        return _unread(ResourceExhausted("the model does not fit into memory", fix="bind smaller shapes"), target)
    except Exception as error:
        said = f"the model cannot be judged: {type(error).__name__}: {error!s:.200}"
        return _unread(InternalError(said, fix="report this model: it is our fault"), target)


def _largest(options: CompileOptions) -> CompileOptions:
    """For the binding whose dimensions are largest, multiplied."""
    largest = max(options.bindings, key=lambda one: math.prod(one.binding.values()))
    return replace(options, dims=largest.dims)


def _corrected(found: Survey, options: CompileOptions) -> dict[str, Any] | None:
    """The options for each of their bindings, corrected; None where nothing had to be."""
    if not isinstance(options.dims, tuple):
        return None if found.options == options else found.options.to_json()
    inputs = found.model.body.inputs
    each = tuple(correct(inputs, replace(found.options, dims=one)).binding for one in options.dims)
    corrected = replace(found.options, dims=each)
    return None if corrected == options else corrected.to_json()


def _answer(found: Survey, options: CompileOptions, target: dict[str, Any]) -> dict[str, Any]:
    """The answer for a file that was read, under the options as they were given, but for the corrected ones."""
    graph = found.graph
    refused, gflop = _count(graph) if graph else ([], None)
    effort = reference_effort(graph) if graph else None
    uses = [_operator(use, refused) for use in found.uses]
    refusals = [*found.refusals, *refused]
    problem = (
        found.problem
        or (_target_problem(options) if target["name"] is None else None)
        or _without_problem(options)
        or (proof_problem(effort, options) if effort else None)
    )
    weights = sum(map(_bytes, found.constants.values()))
    activations = _peak(graph) if graph else None
    return {
        "ok": problem is None and not refusals,
        "problem": _problem(problem, refused),
        "nodes": sum(use.count for use in found.uses),
        "operators": uses,
        "refusals": [asdict(refusal) for refusal in refusals],
        "inputs": [_input(entry, entry.name not in found.open) for entry in found.model.body.inputs],
        "outputs": _outputs(found),
        "parameters": sum(array.size for array in found.constants.values()),
        "weight_bytes": weights,
        "activation_bytes": activations,
        "gflop": {"value": gflop, "counts": GFLOP_COUNTS},
        "proof": {
            "seconds": round(effort.seconds, 3) if effort else None,
            "bytes": effort.bytes if effort else None,
        },
        "memory_bytes": {
            "compile": None if activations is None or effort is None else _compile_bytes(weights, activations, effort),
            "run": None if activations is None else RUN_BASE_BYTES + weights + activations,
        },
        "notices": [*found.notices, *(proof_notices(effort) if effort else ())],
        "target": target,
    }


def _unread(error: TilewrightError, target: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for a file that cannot be read."""
    empty = ("operators", "inputs", "outputs", "notices")
    return {
        "ok": False,
        "problem": error.to_json(),
        "nodes": 0,
        **{name: [] for name in empty},
        "refusals": [asdict(refusal) for refusal in error.refusals],
        "parameters": 0,
        "weight_bytes": 0,
        "activation_bytes": None,
        "gflop": {"value": None, "counts": GFLOP_COUNTS},
        "proof": {"seconds": None, "bytes": None},
        "memory_bytes": {"compile": None, "run": None},
        "corrected": None,
        "target": dict(target),
    }


def _target(options: CompileOptions) -> tuple[dict[str, Any], CompileOptions]:
    """What the target stands for, and the options with the nearest known one where it stands for nothing."""
    try:
        return {"name": _profile(options.target), "reason": None}, options
    except TargetUnavailable as error:
        known = [profile.name for profile in kind_of(options.target).profiles]
        nearest = difflib.get_close_matches(options.target, known, n=1) or [options.kind]
        return {"name": None, "reason": error.message}, replace(options, target=nearest[0])


def _target_problem(options: CompileOptions) -> TilewrightError | None:
    try:
        _profile(options.target)
    except TargetUnavailable as error:
        return error
    return None


def _without_problem(options: CompileOptions) -> TilewrightError | None:
    try:
        enabled_passes(options.without)
    except OptionsError as error:
        return error
    return None


def _profile(name: str) -> str:
    """What a target stands for; no driver is opened for it. Raises TargetUnavailable."""
    kind = kinds.of(name)
    return name if kind.accelerator and name == kind.name else resolve(name).name


def _problem(problem: TilewrightError | None, refused: list[Refusal]) -> dict[str, Any] | None:
    if problem is None and refused:
        problem = UnsupportedModel(f"{len(refused)} nodes cannot be compiled", refusals=tuple(refused))
    return problem.to_json() if problem else None


def _operator(use: Use, refused: list[Refusal]) -> dict[str, Any]:
    refusals = [*use.refusals, *(refusal for refusal in refused if refusal.operator == use.operator)]
    return {
        "operator": use.operator,
        "domain": use.domain or "ai.onnx",
        "count": use.count,
        "verdict": "refused" if refusals else "supported",
        "reasons": list(dict.fromkeys(refusal.reason for refusal in refusals)),
        "fixes": list(dict.fromkeys(refusal.fix for refusal in refusals if refusal.fix)),
        "nodes": use.nodes,
        "unchecked": use.unchecked,
    }


def _input(entry: Input, bound: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "dtype": str(entry.dtype) if entry.dtype else None,
        "shape": None if entry.shape is None else list(entry.shape),
        "bound": bound,
    }


def _outputs(found: Survey) -> list[dict[str, Any]]:
    if found.graph is None:
        declared = found.model.body.declared
        return [
            {"name": name, "dtype": None, "shape": list(declared[name]) if name in declared else None}
            for name in found.model.body.outputs
        ]
    values = [found.graph.values[id] for id in found.graph.outputs]
    return [
        {
            "name": one.name,
            "dtype": str(one.type.dtype),
            "shape": [dim if isinstance(dim, int) else str(dim) for dim in one.type.shape],
        }
        for one in values
    ]


def _bytes(array: np.ndarray) -> int:
    """Bytes in memory; an axis that is broadcast takes none."""
    taken = [dim for dim, stride in zip(array.shape, array.strides, strict=True) if stride]
    return int(math.prod(taken)) * array.itemsize


def _compile_bytes(weights: int, activations: int, effort: Effort) -> int:
    fitted = COMPILE_WEIGHTS * weights + COMPILE_ACTIVATIONS * activations
    return COMPILE_BASE_BYTES + max(fitted, weights + effort.bytes)


def _peak(graph: Graph) -> int:
    """Most bytes alive at once when the nodes run in order; constants are not counted."""
    last = {value: position for position, node in enumerate(graph.nodes) for value in node.used}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    ends: dict[int, list[int]] = {}
    for value, position in last.items():
        if value not in graph.constants:
            ends.setdefault(position, []).append(value)
    alive = peak = sum(graph.type(value).bytes for value in graph.inputs)
    for position, node in enumerate(graph.nodes):
        alive += sum(graph.type(value).bytes for value in node.outputs)
        peak = max(peak, alive)
        alive -= sum(graph.type(value).bytes for value in ends.get(position, ()))
        alive -= sum(graph.type(value).bytes for value in node.outputs if value not in last)
    return peak


def _count(graph: Graph) -> tuple[list[Refusal], float]:
    """Nodes that have no definition, and the work of those that have one (see GFLOP_COUNTS)."""
    refused: list[Refusal] = []
    known: dict[object, int] = {}
    total = 0
    for node in graph.nodes:
        types = tuple(None if value is None else graph.type(value) for value in node.inputs)
        results = tuple(graph.type(value) for value in node.outputs)
        key = (node.op, types, results, tuple(sorted(node.attrs.items(), key=lambda attr: attr[0])))
        try:
            if key not in known:
                known[key] = _products(node, graph)
            total += known[key]
        except Unsupported as no:
            refused.append(Refusal(no.reason, no.fix, node.source, node.op))
    return refused, 2e-9 * total


def _products(node: Node, graph: Graph) -> int:
    """Multiply-accumulates of a node: the points of each sum whose terms are products of two tensors."""
    types = tuple(None if value is None else graph.type(value) for value in node.inputs)
    kernel = OPERATORS[node.op].define(node, types, tuple(graph.type(value) for value in node.outputs))
    if not isinstance(kernel, Kernel):
        return 0
    total: int = 0
    for block in kernel.blocks:
        if block.monoid == "sum" and any(map(_is_product, block.values)):
            total += math.prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
    return total


def _is_product(value: Expr) -> bool:
    return any(
        isinstance(part, Apply) and part.function == "mul" and len({load.slot for load in part.loads}) > 1
        for part in value.walk()
    )
