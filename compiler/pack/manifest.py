"""manifest.json and plan.json: what programs read of an artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import Any, Literal

from compiler.contract.systems import LINUX
from compiler.encodings.aside import Octets
from compiler.errors import VerifyError
from compiler.ir.border import RANDOM_STATE, Border
from compiler.ir.buffers import KernelGraph
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.region import Region
from compiler.pack.facts import Facts, Rejected
from compiler.pack.guarded import guarded_json, storages_json, task_json
from compiler.pack.inside import region_json
from compiler.pack.timeline import expected, measured, predicted_seconds
from compiler.pack.work import flops

FORMAT_VERSION = 1
ABI_VERSION = 3
STRING = "string"
"""The dtype of ports of which the program takes and gives the numbers of strings, i64."""


def manifest(program: Program, plan: Plan, facts: Facts, members: Mapping[str, Octets]) -> dict[str, Any]:
    """The description of an artifact; `members` are all its other files. Dtypes have numpy's names, and `bfloat16`."""
    return {
        "format": "tilewright",
        "format_version": FORMAT_VERSION,
        "abi_version": ABI_VERSION,
        "compiler_version": facts.compiler_version,
        "toolchain": program.toolchain,
        "model_digest": facts.model_digest,
        "options": dict(facts.options),
        "target": facts.target,
        "hardware": facts.hardware,
        **({"requires": _requires(program)} if program.machine else {}),
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "calls": len(plan.tiles),
        "arena_bytes": plan.arena_bytes,
        "weight_bytes": len(program.weights),
        "predicted_s": predicted_seconds(plan, facts),
        **({"samples": list(facts.samples)} if facts.samples else {}),
        **({"quantised": asdict(facts.quantised.report)} if facts.quantised else {}),
        "inputs": [
            {**_described(port, facts.border.inputs), **_range(port, facts), **_examples(number, facts)}
            for number, port in enumerate(own(program.inputs, facts.open, "inputs"))
            if not (facts.border.random and port.name == RANDOM_STATE)
        ],
        "outputs": [_described(port, facts.border.outputs) for port in own(program.outputs, facts.open, "outputs")],
        **_carried(program, facts),
        **_open(facts),
        **_border(facts.border),
        "files": files_json(members),
    }


def _requires(program: Program) -> dict[str, Any]:
    """What a machine must be and have; its system where that is another one than Linux."""
    system = {} if program.system == LINUX.name else {"system": program.system}
    return {"machine": program.machine, **system, "features": program.features}


def files_json(members: Mapping[str, Octets]) -> dict[str, Any]:
    """The size and SHA-256 of each file, by its name."""
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }


def plan_json(
    program: Program, plan: Plan, kernels: KernelGraph, facts: Facts, others: Sequence[Plan] = ()
) -> dict[str, Any]:
    """The plan: calls with their tile and cost, tasks with their times, and the place of each storage.

    Times are the predicted begin and end in seconds, and the measured ones where it was traced.

    For a GPU also the launches, each by the calls that it carries out side by side, and how many each graph has where
    the host decides between graphs; where the artifact holds several plans, the `others` too.
    """
    return {
        **_timeline_json(plan, kernels, facts),
        **({"launches": [list(calls) for calls in program.launches]} if program.launches else {}),
        **({"graphs": list(program.graphs)} if program.graphs else {}),
        **guarded_json(plan, others),
    }


def rejected_json(rejected: Rejected, kernels: KernelGraph, facts: Facts) -> dict[str, Any]:
    """A plan that was not taken, in the form of `plan_json`: what there would be of an artifact that held it."""
    own = replace(facts, costs=rejected.costs, predicted=rejected.predicted, measured=rejected.measured)
    return _timeline_json(rejected.plan, kernels, own)


def _timeline_json(plan: Plan, kernels: KernelGraph, facts: Facts) -> dict[str, Any]:
    if len(facts.costs) != len(kernels.calls):
        raise VerifyError(f"{len(facts.costs)} costs for {len(kernels.calls)} calls")
    timeline, traced = expected(plan, facts), measured(plan, facts)
    return {
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "arena_bytes": plan.arena_bytes,
        "predicted_s": predicted_seconds(plan, facts),
        "handover_s": facts.handover_s,
        **({"ceilings": asdict(facts.ceilings)} if facts.ceilings else {}),
        "calls": [_call(plan, kernels, facts, position) for position in range(len(kernels.calls))],
        "tasks": [
            {
                **task_json(task),
                "begin_s": timeline.spans[at][0],
                "end_s": timeline.spans[at][1],
                "critical": at in timeline.critical,
                **({"measured_s": list(traced.spans[at])} if traced else {}),
            }
            for at, task in enumerate(plan.tasks_of_one_device())
        ],
        "storages": storages_json(plan),
    }


def to_bytes(document: Mapping[str, Any], indent: int | None = 1) -> bytes:
    """JSON in ASCII, so that no name in it can be more than text. Without `indent` it is one line."""
    return (json.dumps(document, ensure_ascii=True, indent=indent) + "\n").encode()


def _call(plan: Plan, kernels: KernelGraph, facts: Facts, position: int) -> dict[str, Any]:
    call = kernels.calls[position]
    tile, tiles = plan.tiles[position]
    seconds, source = facts.time_of(position)
    return {
        "family": call.kernel.family,
        "sources": list(call.sources),
        "tile": str(tile),
        "blocking": tile.to_json(),
        "tiles": tiles,
        "predicted_s": seconds,
        "predicted_from": source,
        "flops": flops(call.kernel),
        "reads": [kernels.buffers[buffer].storage for buffer in call.inputs],
        "writes": [kernels.buffers[buffer].storage for buffer in call.outputs],
        **({"region": region_json(call.kernel)} if isinstance(call.kernel, Region) else {}),
    }


def _range(port: Port, facts: Facts) -> dict[str, Any]:
    """The numbers that an input takes, as `[low, high]`, where something is demanded; null for an end without bound."""
    if port.name in facts.border.inputs:
        return {}
    return next(({"range": [one.low, one.high]} for one in facts.ranges if one.input == port.name), {})


def _carried(program: Program, facts: Facts) -> dict[str, Any]:
    """The states that runs hand on, by the names of the output and of the input that it is in the next run."""
    named = [
        {
            "output": program.outputs[one.output].name,
            "input": program.inputs[one.input].name,
            "in_place": one.in_place,
            **({} if one.axis is None else {"axis": one.axis}),
            **({"rows": one.rows, "room": one.room} if one.rows else {}),
        }
        for one in facts.carried
    ]
    return {"carried": named} if named else {}


def _border(border: Border) -> dict[str, Any]:
    """The model's strings, each at its number, whether it draws random numbers, and what callers give otherwise."""
    words = {"strings": list(border.words)} if border.inputs or border.outputs else {}
    outside = border.outside.to_json()
    return {**words, **({"random": True} if border.random else {}), **({"outside": outside} if outside else {})}


def _described(port: Port, texts: Set[str]) -> dict[str, Any]:
    """An input or output as callers know it, of which some are strings."""
    return {**port_json(port), "dtype": STRING} if port.name in texts else port_json(port)


def _examples(number: int, facts: Facts) -> dict[str, Any]:
    """The elements that an input may have, where few are legal."""
    known = dict(facts.open.examples) if facts.open else {}
    return {"examples": [list(one) for one in known[number]]} if number in known else {}


def own(ports: Sequence[Port], shapes: OpenShapes | None, kind: Literal["inputs", "outputs"]) -> Sequence[Port]:
    """A program's inputs or outputs that are the model's: without the sizes behind them."""
    return ports if shapes is None else ports[: len(getattr(shapes, kind))]


def _open(facts: Facts) -> dict[str, Any]:
    """The dimensions that are open, and of each axis of inputs and outputs the number of what holds its size.

    Of inputs among the dimensions, of outputs among all that the program gives; null where an axis has but one. And
    what must hold of the data of a run, where anything must, and of texts which lie one behind the other.
    """
    shapes = facts.open
    if shapes is None:
        return {}
    dimensions = [
        {"name": one.name, "min": one.low, "opt": opt, "max": one.high, **({"step": one.step} if one.step > 1 else {})}
        for one, opt in zip(shapes.dimensions, facts.opt, strict=True)
    ]
    own_inputs = shapes.inputs[:-1] if facts.border.random else shapes.inputs
    inputs, outputs = ([list(axes) for axes in its] for its in (own_inputs, shapes.outputs))
    limits = [
        {"says": one.says, "min": one.low, "max": one.high, "output": one.output}
        | ({"sizes": [*one.sizes]} if one.sizes else {})
        for one in shapes.limits
    ]
    found = {"dimensions": dimensions, "inputs": inputs, "outputs": outputs, **({"limits": limits} if limits else {})}
    if shapes.texts is not None:
        found["texts"] = asdict(shapes.texts)
    return {"open": found}


def port_json(port: Port) -> dict[str, Any]:
    """An input or output as loaders read it."""
    return {"name": port.name, "dtype": port.type.dtype.numpy.name, "shape": list(port.type.dims)}
