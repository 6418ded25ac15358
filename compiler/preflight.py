"""What compiling a model would take and what would be refused, found within a second and without compiling it."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from compiler.contract import CompileOptions, kinds
from compiler.contract.options import CACHE_OF_MODEL, CARRY_AUTO
from compiler.contract.preflight import unread
from compiler.devices.kinds import profiles_like, resolved_name, whole_kind_of
from compiler.disabled import enabled_passes, known
from compiler.encodings import FINDINGS
from compiler.encodings.finding import Finding
from compiler.errors import (
    InternalError,
    OptionsError,
    Refusal,
    ResourceExhausted,
    TargetUnavailable,
    TilewrightError,
    UnsupportedModel,
)
from compiler.frontend import Survey, Use, bind_what_is_open, survey
from compiler.frontend.binding.correct import correct, open_inputs
from compiler.frontend.portion import named_tensors
from compiler.frontend.ragged import load_texts, suggested_ragged
from compiler.frontend.reading.model import Body, Input
from compiler.frontend.reading.read import ModelFile
from compiler.ir.expr import Apply, Expr
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Kernel
from compiler.ir.region import WHILE, Loop
from compiler.measure.npz import STRING
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.prove.effort import Effort, reference_effort
from compiler.prove.ranges import Derived, Unproven, derive
from compiler.quantize.compilation import QUANTISING, foreseen_layers
from compiler.request import Request
from compiler.steps.chunking import requests_of_chunks, suggested
from compiler.steps.divisible import browser_problem, division_problem, peak_bytes
from compiler.steps.foreseeing import proof_notices, proof_problem
from compiler.steps.states.caches import with_cache
from compiler.steps.states.carried import (
    BoundStates,
    Pair,
    Types,
    carried_by,
    corrected_pairs,
    demand_pairs,
    demand_shared,
    ports_of,
    suggested_states,
)

COMPILE_BASE_BYTES = 448 << 20
"""The compiler itself, and two C compiler processes."""
RUN_BASE_BYTES = 8 << 20
"""The loader, the code and its threads."""
COMPILE_WEIGHTS, COMPILE_ACTIVATIONS = 6, 16
"""Copies held at once: in the file, in memory, folded, packed, and twice as wide for the float64 reference, which keeps
more than what is alive. Fitted to what compiling SqueezeNet and ResNet-18 took."""

COMPILED_WHOLE = (
    "whether each operator has a form in int8 that this target's compiler takes is only known once it is compiled; "
    "its report has a placement"
)

SHOWN_INPUTS = 4
"""Of those that a sentence names."""
T = TypeVar("T")
SHOWN_WEIGHTS = 64
"""Of each kind of finding."""

GFLOP_COUNTS = (
    "billions of operations, 2 for each multiply-accumulate of convolutions, matrix products and recurrences, "
    "taps on padding included; element-wise work, pooling and normalisation are not counted"
)


def preflight(model: Path, options: CompileOptions, data: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """What would become of a model: a `compiler.contract.preflight.ModelAnswer` as JSON. Raises nothing for any model.

    `data` says where all external data lies, by its path in the model; None: beside the model.

    Nodes are judged under the corrected options, so that a model with open dimensions has its verdicts too. Of options
    for several bindings the one with the largest dimensions is judged, and all are corrected. Where dimensions have
    ranges the program for all of their sizes is judged, and inputs are those at their opt.
    """
    target, chosen = _target(options)
    chosen = replace(chosen, without=tuple(name for name in chosen.without if name in known()))
    given = options
    try:
        notices: tuple[str, ...] = (COMPILED_WHOLE,)
        if not kinds.of(chosen.compiled_for).whole:
            chosen, notices = bind_what_is_open(model, chosen, OPERATORS, data)
        options = replace(options, dims=chosen.dims)
        judged = _largest(options)
        found = survey(model, replace(chosen, dims=judged.dims), OPERATORS, data)
        drawn = found.graph
        if drawn and judged.ranges:
            drawn = survey(model, replace(chosen, dims=judged.bindings[0].dims), OPERATORS, data).graph
        each = _surveys(model, chosen, data)
        states = _corrected_states(found, options, each)
        found = replace(found, options=replace(found.options, carry=states.carry, cache=states.cache))
        left = open_inputs(found.model.body.inputs, _largest(given))
        impossible = _whole_problem(given)
        if found.graph and chosen.precision == "int8" and not kinds.of(chosen.compiled_for).whole:
            layers, impossible = _layers(model, options, data)
            notices = (*notices, *layers)
        if found.graph:
            texts, impossible = _texts(model, given, data, impossible)
            pieces, impossible = _pieces(model, data, found, impossible)
            notices = (*notices, *texts, *pieces)
        answer = _answer(found, judged, target, drawn, left, impossible, _carry_problem(found, judged, each))
        corrected = _corrected(found, options) or (options.to_json() if options != given else None)
        return answer | {"corrected": corrected, "notices": [*notices, *answer["notices"]]}
    except TilewrightError as error:
        return _unread(error, target)
    except MemoryError:
        return _unread(ResourceExhausted("the model does not fit into memory", fix="bind smaller shapes"), target)
    except Exception as error:
        said = f"the model cannot be judged: {type(error).__name__}: {error!s:.200}"
        return _unread(InternalError(said, fix="report this model: it is our fault"), target)


def _largest(options: CompileOptions) -> CompileOptions:
    """For the binding whose dimensions are largest, multiplied; a range counts as its max."""
    if not isinstance(options.dims, tuple):
        return options
    each = [replace(options, dims=one) for one in options.dims]
    return max(each, key=lambda one: math.prod(one.binding.values()))


def _corrected(found: Survey, options: CompileOptions) -> dict[str, Any] | None:
    """The options for each of their bindings, corrected; None where nothing had to be."""
    if not isinstance(options.dims, tuple):
        return None if found.options == options else found.options.to_json()
    inputs = found.model.body.inputs
    each = [correct(inputs, replace(found.options, dims=one)) for one in options.dims]
    corrected = replace(found.options, dims=tuple({**one.binding, **one.open_sizes} for one in each))
    return None if corrected == options else corrected.to_json()


def _answer(
    found: Survey,
    options: CompileOptions,
    target: dict[str, Any],
    drawn: Graph | None,
    left: Container[str],
    impossible: TilewrightError | None,
    states: TilewrightError | None,
) -> dict[str, Any]:
    """The answer for a file that was read, under the options as they were given, but for the corrected ones.

    drawn       the graph that inputs are drawn for: where dimensions are open, that at the opt of their ranges
    left        the inputs of which the options as they were given leave a dimension open
    impossible  what of them the target, or the model in their precision, cannot be given
    states      why what is carried cannot be
    """
    graph = found.graph
    refused, gflop = _count(graph) if graph else ([], None)
    effort = reference_effort(graph) if graph else None
    divided = _division_problem(found, options)
    asked = [
        (_target_problem(options) if target["name"] is None else impossible),
        _without_problem(options),
        states,
        (proof_problem(effort, options) if effort else None),
    ]
    others = [each for one in asked if one is not None for each in one.refusals or (Refusal(one.message, one.fix),)]
    if divided is not None:
        refused += divided.refusals
    refusals = [*found.refusals, *refused, *others]
    problem = next((one for one in (found.problem, *asked, divided) if one is not None), None)
    derived = derive(drawn) if drawn else Derived({}, ())
    weights = sum(map(_bytes, found.constants.values()))
    activations = peak_bytes(graph) if graph else None
    return {
        "ok": problem is None and not refusals,
        "problem": _problem(problem, refused),
        "nodes": sum(use.count for use in found.uses),
        "operators": [_operator(use, refused) for use in found.uses],
        "refusals": [asdict(refusal) for refusal in refusals],
        "inputs": [_input(entry, entry.name not in left, drawn, derived) for entry in found.model.body.inputs],
        "samples": [_wanted(drawn, open_) for open_ in derived.unproven] if drawn else [],
        "outputs": _outputs(found),
        **_states(found, options, refused=states is not None),
        "parameters": sum(array.size for array in found.constants.values()),
        "weight_bytes": weights,
        **{kind.key: _findings(kind, _weights(found) if kind.computed else found.constants) for kind in FINDINGS},
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
    refusals = [asdict(refusal) for refusal in error.refusals]
    return unread(error.to_json(), refusals, target, GFLOP_COUNTS).model_dump()


def _target(options: CompileOptions) -> tuple[dict[str, Any], CompileOptions]:
    """What the target stands for, and the options with the nearest known one where it stands for nothing."""
    try:
        return {"name": _profile(options.compiled_for), "reason": None}, options
    except TargetUnavailable as error:
        asked = options.compiled_for
        known = profiles_like(asked)
        otherwise = known[0] if kinds.of(asked).whole else options.kind
        nearest = next(iter(difflib.get_close_matches(asked, known, n=1)), otherwise)
        if asked == options.target:
            return {"name": None, "reason": error.message}, replace(options, target=nearest)
        devices = tuple(nearest if one == asked else one for one in options.devices)
        return {"name": None, "reason": error.message}, replace(options, devices=devices)


def _target_problem(options: CompileOptions) -> TilewrightError | None:
    try:
        _profile(options.compiled_for)
    except TargetUnavailable as error:
        return error
    return None


def _whole_problem(options: CompileOptions) -> TilewrightError | None:
    """Why a model cannot be compiled whole under these options."""
    whole = whole_kind_of(options.compiled_for)
    try:
        if whole is not None:
            whole.demand_possible(options)
    except OptionsError as error:
        return error
    return None


def _texts(
    model: Path, options: CompileOptions, data: Mapping[str, Path] | None, impossible: TilewrightError | None
) -> tuple[tuple[str, ...], TilewrightError | None]:
    """Whether texts of unequal lengths can share an axis, where that is asked for, or the model looks like it."""
    file = ModelFile(model, data)
    asked = options if options.ragged else suggested_ragged(file, options)
    if asked is None or impossible is not None:
        return (), impossible
    try:
        load_texts(file, asked, OPERATORS).loaded  # noqa: B018
    except TilewrightError as error:
        why = str(error.refusals[0]) if error.refusals else error.message
        return ((), error) if options.ragged else ((f"its texts cannot share an axis of tokens: {why}",), None)
    if options.ragged:
        return (), None
    return (
        f"its texts can share an axis of tokens, without padding: {json.dumps({'ragged': dict(asked.ragged)})}",
    ), None


def _pieces(
    model: Path, data: Mapping[str, Path] | None, found: Survey, impossible: TilewrightError | None
) -> tuple[tuple[str, ...], TilewrightError | None]:
    """How an output comes in pieces, where that is asked for, or an output looks like sound; or why it cannot."""
    options = found.options
    if impossible is not None or found.graph is None or options.kind != kinds.CPU.name or options.devices:
        return (), impossible
    if not options.chunks:
        windows = suggested(found.graph, found.open_shapes, named_tensors(found.model))
        if windows is None:
            return (), None
        return (f"{windows}: {json.dumps({'chunks': {windows.output: windows.length}})}",), None
    try:
        return (str(requests_of_chunks([Request(model, Path(), options.bindings[-1], data)])[0]),), None
    except (OptionsError, UnsupportedModel) as error:
        return (), error


def _layers(
    model: Path, options: CompileOptions, data: Mapping[str, Path] | None
) -> tuple[tuple[str, ...], TilewrightError | None]:
    """What is known of quantising the model, and why it cannot be."""
    try:
        return (foreseen_layers(model, options, data),), None
    except MemoryError:
        return ("which layers can be computed in int8 is not known: the model is too large to look at here",), None
    except TilewrightError as error:
        return (), error


def _without_problem(options: CompileOptions) -> TilewrightError | None:
    try:
        enabled_passes(options.without)
    except OptionsError as error:
        return error
    return None


def _surveys(
    model: Path, options: CompileOptions, data: Mapping[str, Path] | None
) -> list[tuple[CompileOptions, Survey]]:
    """What each of several bindings that share states makes of the model; none where a node of one is refused."""
    if not options.carry or len(options.bindings) == 1:
        return []
    each = [(one, survey(model, one, OPERATORS, data)) for one in options.bindings]
    return each if all(found.graph for _, found in each) else []


def _carry_problem(
    found: Survey, options: CompileOptions, each: Sequence[tuple[CompileOptions, Survey]]
) -> TilewrightError | None:
    try:
        demand_pairs(*_pairs(found, options))
        if found.graph is not None and not options.devices:
            carried = carried_by(found.graph, found.open_shapes, found.border, options)
            with_cache(found.graph, found.border, options.cache, carried)
        bound = [(replace(own, carry=options.carry, cache=options.cache), one) for own, one in each]
        states = [BoundStates.of(one.graph, one.open_shapes, one.border, own) for own, one in bound if one.graph]
        if states:
            demand_shared(states)
    except OptionsError as error:
        return error
    return None


def _division_problem(found: Survey, options: CompileOptions) -> UnsupportedModel | None:
    """Why the model cannot run on several devices, or in a browser, with its own names of operators."""
    kind = kinds.of(options.compiled_for)
    if found.graph is None or kind.whole or not (options.devices or kind.browser):
        return None
    problem = (browser_problem if kind.browser else division_problem)(found.graph, found.open_shapes, found.border)
    operators = {call.source: call.operator for call in found.model.body.calls}
    if problem is not None:
        problem.refusals = tuple(
            replace(one, operator=operators.get(one.node, one.operator)) for one in problem.refusals
        )
    return problem


def _pairs(found: Survey, options: CompileOptions) -> tuple[list[Pair], Types, Types, list[str]]:
    """What `demand_pairs` judges: of a file with a refused node by names, and by types as far as they are known.

    An accelerator takes no output as a state that is an input as it is; cores copy it.
    """
    pairs, body = sorted(options.named_states.items()), found.model.body
    outputs: Types = dict.fromkeys(body.outputs)
    open_ = [one.name for one in body.inputs if one.name not in options.constant_inputs]
    inputs: Types = {name: found.types.get(name) for name in open_}
    if found.graph is not None:
        outputs, inputs = ports_of(found.graph)
    whole = kinds.of(options.compiled_for).whole
    return pairs, outputs, inputs, [out for out in outputs if _root(body, out) in inputs] if whole else []


def _root(body: Body, name: str) -> str:
    """The tensor that a name stands for, behind what rounds to bytes and back."""
    rounded = {call.outputs[0]: call.inputs[0] for call in body.calls if call.op in QUANTISING}
    while name in rounded:
        name = rounded.pop(name)
    return name


def _corrected_states(
    found: Survey, options: CompileOptions, each: Sequence[tuple[CompileOptions, Survey]]
) -> CompileOptions:
    """With those that can be carried: the word for those that names say, where they say any; and as what caches lie.

    Of several bindings those that are alike in each.
    """
    states = options
    if not isinstance(options.carry, str):
        states = _with_states(options, corrected_pairs(*_pairs(found, options)))
    for one in (states, replace(states, cache=CACHE_OF_MODEL)):
        if not _carry_problem(found, one, each):
            return one
    carry = states.carry
    if isinstance(carry, str):
        carry = suggested_states(found.graph, found.open_shapes, found.border) if found.graph else {}
    ports = [ports_of(one.graph) for _, one in each if one.graph]
    shared = {
        out: into
        for out, into in carry.items()
        if len({str((made.get(out), read.get(into))) for made, read in ports}) == 1
    }
    states = _with_states(options, shared)
    return _with_states(options, {}) if _carry_problem(found, states, each) else states


def _with_states(options: CompileOptions, carry: Mapping[str, str]) -> CompileOptions:
    return replace(options, carry=carry, cache=options.cache if carry else CACHE_OF_MODEL)


def _states(found: Survey, options: CompileOptions, *, refused: bool) -> dict[str, Any]:
    """The states that are carried, and those that are not though names say that they may be."""
    suggested = suggested_states(found.graph, found.open_shapes, found.border) if found.graph else {}
    carried = {} if refused else suggested if options.carry == CARRY_AUTO else options.named_states
    named = {*carried, *carried.values()}
    others = {out: into for out, into in suggested.items() if named.isdisjoint((out, into))}
    types: dict[str, Any] = dict(found.types)
    if carried and found.graph and not options.devices:
        graph, border = with_cache(found.graph, found.border, options.cache, carried)
        carried, types = {**carried, **border.scales}, types | {**ports_of(graph)[1]}
    return {
        "carried": [*map(partial(_state, types), sorted(carried.items()))],
        "suggested_states": [*map(partial(_state, found.types), sorted(others.items()))],
    }


def _state(types: Mapping[str, Any], pair: Pair) -> dict[str, Any]:
    """A state that is carried."""
    type = types.get(pair[1])
    return {
        "output": pair[0],
        "input": pair[1],
        "dtype": str(type.dtype) if type else None,
        "shape": [*type.dims] if type else None,
    }


def _profile(name: str) -> str:
    """What a target stands for; no driver is opened for it. Raises TargetUnavailable."""
    kind = kinds.of(name)
    return name if kinds.family(name) or (kind.accelerator and name == kind.name) else resolved_name(name)


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


def _input(entry: Input, bound: bool, graph: Graph | None, derived: Derived) -> dict[str, Any]:
    named = {graph.values[value].name: found for value, found in derived.ranges.items()} if graph else {}
    sized = {graph.values[value].name: graph.type(value).shape for value in graph.inputs} if graph else {}
    drawn = named.get(entry.name)
    return {
        "name": entry.name,
        "dtype": STRING if entry.is_text else str(entry.dtype) if entry.dtype else None,
        "shape": None if entry.shape is None else list(entry.shape),
        "taken": list(sized[entry.name]) if entry.name in sized else None,
        "bound": bound,
        "range": list(drawn.interval.ends) if drawn and not entry.is_text else None,
        "why": drawn.why if drawn else "",
    }


def _wanted(graph: Graph, open_: Unproven) -> dict[str, Any]:
    """Why samples should be given."""
    demand, names = open_.demand, [graph.values[value].name for value in open_.inputs]
    shown = ", ".join(map(repr, names[:SHOWN_INPUTS])) + (" and others" if len(names) > SHOWN_INPUTS else "")
    reason = f"it reads as {demand.why} what is computed from {shown}, and no range of them is known to keep it inside"
    fix = "give samples of inputs that the model takes, as .npz archives"
    return {**asdict(Refusal(reason, fix, demand.node.source, demand.node.op)), "inputs": names}


def _outputs(found: Survey) -> list[dict[str, Any]]:
    if found.graph is None:
        declared = found.model.body.declared
        return [
            {"name": name, "dtype": None, "shape": list(declared[name]) if name in declared else None}
            for name in found.model.body.outputs
        ]
    values = [found.graph.values[id] for id in found.graph.outputs]
    open_axes = found.open_shapes.outputs if found.open_shapes else [(None,) * one.type.rank for one in values]
    return [
        {
            "name": one.name,
            "dtype": STRING if one.name in found.border.outputs else str(one.type.dtype),
            "shape": [
                dim if number is None else _declared(found, one.name, axis)
                for axis, (dim, number) in enumerate(zip(one.type.dims, axes, strict=True))
            ],
        }
        for one, axes in zip(values, open_axes, strict=False)
    ]


def _declared(found: Survey, output: str, axis: int) -> str | None:
    """What the file calls an axis of an output that is open; None where it does not say."""
    shape = found.model.body.declared.get(output, ())
    name = shape[axis] if axis < len(shape) else None
    return name if isinstance(name, str) else None


def _bytes(array: np.ndarray) -> int:
    """Bytes in memory; an axis that is broadcast takes none."""
    taken = [dim for dim, stride in zip(array.shape, array.strides, strict=True) if stride]
    return int(math.prod(taken)) * array.itemsize


def _findings(kind: type[Finding], constants: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Of one kind, of the SHOWN_WEIGHTS largest weights of which there is anything to tell."""
    known = ((name, array, kind.of(array)) for name, array in constants.items() if _bytes(array) == array.nbytes)
    found = sorted(((name, array, one) for name, array, one in known if one), key=lambda each: -each[1].size)
    return [{"name": name, "shape": list(array.shape), **one.to_json()} for name, array, one in found[:SHOWN_WEIGHTS]]


def _weights(found: Survey) -> Mapping[str, np.ndarray]:
    """The file's tensors with those that are computed of them alone, such as what is gathered from a codebook."""
    if found.graph is None:
        return found.constants
    names = {id: found.graph.values[id].name for node in found.graph.nodes for id in node.used}
    return {name: found.graph.constants[id] for id, name in names.items() if id in found.graph.constants}


def _compile_bytes(weights: int, activations: int, effort: Effort) -> int:
    fitted = COMPILE_WEIGHTS * weights + COMPILE_ACTIVATIONS * activations
    return COMPILE_BASE_BYTES + max(fitted, weights + effort.bytes)


def _count(graph: Graph) -> tuple[list[Refusal], float]:
    """Nodes that have no definition, and the work of those that have one (see GFLOP_COUNTS)."""
    refused: list[Refusal] = []
    known: dict[object, int] = {}
    total = 0
    for node in graph.nodes:
        types = tuple(None if value is None else graph.type(value) for value in node.inputs)
        results = tuple(graph.type(value) for value in node.outputs)
        key = (node.op, types, results, tuple(sorted(node.attrs.items(), key=lambda attr: attr[0])))
        for body in node.bodies.values():
            inside, gflops = _count(body.graph)
            refused += inside
            total += round(gflops / 2e-9) * (max(Loop.of(node).most, 1) if node.op == WHILE else 1)
        if node.bodies:
            continue
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
