"""manifest.json and plan.json: what programs read of an artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan
from compiler.ir.program import Port, Program
from compiler.pack.facts import Facts
from compiler.pack.timeline import predicted, simulate
from compiler.pack.work import flops

FORMAT_VERSION = 1
ABI_VERSION = 2


def manifest(program: Program, plan: Plan, facts: Facts, members: Mapping[str, bytes]) -> dict[str, Any]:
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
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "calls": len(plan.tiles),
        "arena_bytes": plan.arena_bytes,
        "weight_bytes": len(program.weights),
        "predicted_s": predicted(simulate(plan, facts.seconds, facts.handover_s)),
        "inputs": [port_json(port) for port in program.inputs],
        "outputs": [port_json(port) for port in program.outputs],
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
        },
    }


def plan_json(program: Program, plan: Plan, kernels: KernelGraph, facts: Facts) -> dict[str, Any]:
    """The plan: calls with their tile and cost, tasks with their predicted begin and end in seconds, the place of each storage.

    For a GPU also the launches, each by the calls that it carries out side by side.
    """
    if len(facts.costs) != len(kernels.calls):
        raise VerifyError(f"{len(facts.costs)} costs for {len(kernels.calls)} calls")
    spans = simulate(plan, facts.seconds, facts.handover_s)
    return {
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "arena_bytes": plan.arena_bytes,
        "predicted_s": predicted(spans),
        "calls": [_call(plan, kernels, facts, position) for position in range(len(kernels.calls))],
        "tasks": [
            {
                "call": span.task.call,
                "lane": span.task.lane,
                "first": span.task.first,
                "last": span.task.last,
                "waits": [[wait.lane, wait.count] for wait in span.task.waits],
                "begin_s": span.begin,
                "end_s": span.end,
                "critical": span.critical,
            }
            for span in spans
        ],
        "storages": {
            str(storage): {"space": place.space, "at": place.at, "bytes": place.bytes}
            for storage, place in plan.places.items()
        },
        **({"launches": [list(calls) for calls in program.launches]} if program.launches else {}),
    }


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """JSON in ASCII, so that no name in it can be more than text."""
    return (json.dumps(document, ensure_ascii=True, indent=1) + "\n").encode()


def _call(plan: Plan, kernels: KernelGraph, facts: Facts, position: int) -> dict[str, Any]:
    call = kernels.calls[position]
    tile, tiles = plan.tiles[position]
    seconds, source = facts.told(position)
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
    }


def port_json(port: Port) -> dict[str, Any]:
    """An input or output as loaders read it."""
    return {"name": port.name, "dtype": port.type.dtype.numpy.name, "shape": list(port.type.dims)}
