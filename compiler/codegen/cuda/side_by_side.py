"""Independent small kernels as one launch: each block is a tile task of one of them (horizontal fusion; Rammer, OSDI 2020, section 3).

At batch 1 many kernels have fewer blocks than the GPU has multiprocessors, and a launch that depends on another costs more than its work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from compiler.codegen.cuda.lowered import CudaLowered
from compiler.codegen.writer import Writer
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan
from compiler.targets.cuda import CudaTarget

BLOCKS_OF_A_MULTIPROCESSOR = 2
"""More blocks than so many on each fill the GPU: then launches gain nothing from being one."""
MOST_ARGUMENTS = 48
WRAPPER = re.compile(
    r'extern "C" __global__ void __launch_bounds__\(\d+(?:, (?P<resident>\d+))?\) (?P<name>\w+)\((?P<parameters>[^)]*)\) \{\n'
    r"    tw_grid_launch_dependents\(\);\n(?P<wait>    tw_grid_dependency_wait\(\);\n)?"
    r"    (?P=name)_tile\((?P<given>[^;]*)blockIdx\.x\);\n\}\n*$"
)
"""The thin wrapper with which the text of a kernel ends."""
PLACE_IN_GRID = re.compile(r"\b(blockIdx|gridDim)\b")


def fit_together(members: Sequence[CudaLowered], target: CudaTarget) -> bool:
    """Whether kernels can share a launch: blocks of one size, no clusters, tile functions that know only their tile, and a GPU that holds all."""
    shared = max(one.shared_bytes for one in members)
    return (
        len({one.block for one in members}) == 1
        and all(one.cluster == 1 for one in members)
        and sum(one.grid for one in members) <= BLOCKS_OF_A_MULTIPROCESSOR * target.multiprocessors
        and target.blocks_at_once(members[0].block, 0, shared) >= BLOCKS_OF_A_MULTIPROCESSOR
        and all(_is_thin(one) for one in members)
        and sum(len(_parameters(one)) for one in members) <= MOST_ARGUMENTS
    )


def independent(kernels: KernelGraph, plan: Plan, first: int, second: int) -> bool:
    """Whether two calls may run at once: neither reads what the other writes, and where storages share memory neither writes.

    Two calls may write one storage: they write different slices of it, as each element is written once.
    """
    reads, writes = [], []
    for call in (kernels.calls[first], kernels.calls[second]):
        reads.append({kernels.buffers[id].storage for id in call.inputs})
        writes.append({kernels.buffers[id].storage for id in call.outputs})
    if writes[0] & reads[1] or writes[1] & reads[0]:
        return False
    return not any(
        _share_memory(plan, mine, theirs)
        for at in (0, 1)
        for mine in writes[at]
        for theirs in reads[1 - at] | writes[1 - at]
        if mine != theirs
    )


def _share_memory(plan: Plan, one: int, other: int) -> bool:
    a, b = plan.places[one], plan.places[other]
    return a.space == b.space == "arena" and a.at < b.at + b.bytes and b.at < a.at + a.bytes


def side_by_side(name: str, members: Sequence[CudaLowered]) -> CudaLowered:
    """One kernel called `name` whose first blocks are the first member's, and so on; it is given what the members are given, in order."""
    writer = Writer()
    begins = [*accumulate((one.grid for one in members), initial=0)]
    declared: list[str] = []
    calls: list[tuple[bool, str]] = []
    texts = []
    for at, one in enumerate(members):
        found = _wrapper(one)
        own = f"{name}_{at}_"
        texts.append(re.sub(rf"\b{one.name}(?=_|\b)", f"{own}{one.name}", one.text[: found.start()]))
        for kind, slot in _parameters(one):
            declared.append(f"{kind}{slot}_{at}")
        slots = [f"{slot}_{at}" for _, slot in _parameters(one)]
        slots += ["tw_dynamic_shared()"] * (one.shared_bytes > 0)
        tile = f"blockIdx.x - {begins[at]}" if begins[at] else "blockIdx.x"
        calls.append((bool(found["wait"]), f"{own}{one.name}_tile({', '.join([*slots, tile])});"))
    writer.line(f"/* Side by side: {', '.join(one.name for one in members)}. */")
    asked = [int(_wrapper(one)["resident"]) for one in members if _wrapper(one)["resident"]]
    bounds = f"{members[0].block}, {min(asked)}" if asked else f"{members[0].block}"
    with writer.block(f'extern "C" __global__ void __launch_bounds__({bounds}) {name}({", ".join(declared)})'):
        writer.line("tw_grid_launch_dependents();")
        for at, (waits, call) in enumerate(calls):
            last = at == len(calls) - 1
            condition = "else" if last else f"{'else ' if at else ''}if (blockIdx.x < {begins[at + 1]})"
            with writer.block(condition):
                if waits:
                    writer.line("tw_grid_dependency_wait();")
                writer.line(call)
    return CudaLowered(
        name,
        "".join(texts) + writer.text(),
        begins[-1],
        members[0].block,
        max(one.shared_bytes for one in members),
        sum(one.scratch_bytes for one in members),
        sum(one.counters for one in members),
    )


def _wrapper(kernel: CudaLowered) -> re.Match[str]:
    found = WRAPPER.search(kernel.text)
    assert found, f"{kernel.name} ends otherwise than by a thin wrapper"
    return found


def _is_thin(kernel: CudaLowered) -> bool:
    found = WRAPPER.search(kernel.text)
    return found is not None and not PLACE_IN_GRID.search(kernel.text[: found.start()]) and "#if" not in kernel.text


def _parameters(kernel: CudaLowered) -> list[tuple[str, str]]:
    """Type and name of what a kernel is given."""
    found = (re.fullmatch(r"(.*\W)(\w+)", one) for one in _wrapper(kernel)["parameters"].split(", "))
    return [(one[1], one[2]) for one in found if one]
