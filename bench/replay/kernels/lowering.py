"""`python -P lowering.py TREE MODELS OUT`: kernels of models as the compiler in TREE generates them.

Run as a file with the folder TREE as PYTHONPATH; each tree has its own, so that it may follow what the compiler's
modules are called. MODELS is a folder with `asked.json`: [model, whether inner, [[target, precision], ...]] for each
file of ONNX in it. OUT becomes a zip of the kernels' texts, with FOUND (each a `Found`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from compiler.codegen.build import Toolchain
from compiler.codegen.task_grid import TaskGrid
from compiler.contract import CompileOptions
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES as CPUS
from compiler.devices.cuda.device import CudaBackend
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES as GPUS
from compiler.devices.cuda.toolchain import CudaToolchain
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.tuning.proposal import Proposal

WRONG_COMPILER = 70
"""Exit status: what ran is not the compiler in TREE alone."""
FOUND = "found.json"
NO_COMPILER = Toolchain("", "")
"""Of backends that compile nothing."""
LANES = 2
"""Of the plans that tiles are proposed for."""
TILES = 3
"""Of one kernel and algorithm on a target."""
COMMON = frozenset({"loops", "window", "contraction", "gemv", "bf16", "integer", "transpose"})
"""Algorithms, and ways to multiply, of which one tile of each kernel is enough: most kernels have them."""
MULTIPLIES = ("ffma", "mma")


@dataclass(frozen=True)
class Found:
    """What the compiler says of one kernel.

    name       model, target, precision, call, tile
    algorithm  of the tile; empty for what is no kernel: the proposals of a call
    digests    SHA-256 (short) of its parts: `text`, `launch` (tiles, scratch and the like), `packed` constants; of
               proposals, of `tiles` and of their `seconds`
    """

    name: str
    algorithm: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Proposed:
    """A call of a model's kernels on a target, and what is proposed for it."""

    name: str
    backend: CpuBackend | CudaBackend
    kernels: KernelGraph
    call: Call
    workload: Workload
    proposals: Sequence[Proposal]


def found_in(data: bytes, model: str, asked: Sequence[tuple[str, str]], *, inner: bool) -> Iterator[tuple[Found, str]]:
    """The kernels of a model, and the proposals for each, with their texts: see `proposed_in`."""
    for one in proposed_in(data, model, asked, inner=inner):
        yield _proposals(one)
        for tile in chosen(one.name, [proposal.tile for proposal in one.proposals]):
            yield _kernel(one, tile)


def proposed_in(data: bytes, model: str, asked: Sequence[tuple[str, str]], *, inner: bool) -> Iterator[Proposed]:
    """The calls of a model on each target in a precision, those that others may be joined to among them.

    `inner`: as in the midst of a network, where its inputs and outputs lie as suits its kernels.
    """
    graph = rewrite(load(data, CompileOptions(), OPERATORS).graph).graph
    fused = fuse(graph, free=frozenset((*graph.inputs, *graph.outputs)) if inner else frozenset()).kernels
    for target, precision in asked:
        backend = backend_of(target)
        kernels = backend.stored(replace(fused, inputs=(), outputs=()) if inner else fused, precision)
        kernels = replace(kernels, inputs=fused.inputs, outputs=fused.outputs)
        calls = (*kernels.calls, *(one.call for one in joins(kernels, backend.joins)))
        for at, call in enumerate(calls):
            workload = backend.workload_of(kernels, call)
            name = f"{model} {target} {precision} {at}:{call.kernel.family}"
            proposals = backend.legal_tiles(workload, LANES, precision)
            yield Proposed(name, backend, kernels, call, workload, proposals)


def backend_of(target: str) -> CpuBackend | CudaBackend:
    """A profile as it is anywhere, whatever this machine is."""
    for cpu in CPUS:
        if cpu.name == target:
            return CpuBackend(cpu, NO_COMPILER)
    (gpu,) = [one for one in GPUS if one.name == target]
    return CudaBackend(gpu, CudaToolchain(NO_COMPILER, (0, 0)))


def chosen(name: str, tiles: Sequence[Tile]) -> list[Tile]:
    """A tile or two of each algorithm: which ones does not depend on what other tiles there are."""
    by_algorithm: dict[str, list[Tile]] = {}
    for tile in dict.fromkeys(tiles):
        by_algorithm.setdefault(tile.algorithm, []).append(tile)
    kept = []
    for algorithm, each in by_algorithm.items():
        count = 1 if algorithm in COMMON or algorithm.startswith(MULTIPLIES) else TILES
        kept += sorted(each, key=lambda tile: short(f"{name} {tile}"))[:count]
    return kept


def _proposals(one: Proposed) -> tuple[Found, str]:
    workload = str(one.workload)
    tiles = "\n".join(f"{each.tile} error {each.error:.6g}" for each in one.proposals)
    seconds = "\n".join(f"{each.tile} {each.seconds:.9g} s" for each in one.proposals)
    digests = {"workload": short(workload), "tiles": short(tiles), "seconds": short(seconds)}
    return Found(f"{one.name} proposals", "", digests), "\n".join((workload, tiles, seconds))


def _kernel(one: Proposed, tile: Tile) -> tuple[Found, str]:
    launch: Mapping[str, Any]
    packings: Mapping[int, Packing]
    if isinstance(one.backend, CpuBackend):
        in_c = lower("k0", one.workload, tile, one.backend.target)
        text, packings = in_c.text, in_c.packings
        launch = {"tiles": in_c.tiles, "scratch": in_c.scratch_bytes, "grid": _levels(in_c.grid)}
    else:
        cuda = lower_cuda("k0", one.workload, tile, one.backend.target)
        text, packings = cuda.text, cuda.packings
        names = ("grid", "block", "shared_bytes", "scratch_bytes", "counters", "cluster", "waits", "needs")
        launch = {name: getattr(cuda, name) for name in names}
    constants = {slot: packing.pack(one.kernels.constants[one.call.inputs[slot]]) for slot, packing in packings.items()}
    packed = [
        f"packed {slot} {packings[slot].dtype} {short(array.tobytes())}" for slot, array in sorted(constants.items())
    ]
    said = json.dumps(launch)
    digests = {"text": short(text), "launch": short(said), "packed": short("\n".join(packed))}
    notes = (f"// {each}" for each in (said, *packed))
    return Found(f"{one.name} {tile}", tile.algorithm, digests), "\n".join((*notes, text))


def _levels(grid: TaskGrid | None) -> list[str]:
    """How tile tasks cut a kernel, and the digest of the form whose axes are cut."""
    cuts = grid.levels if grid else ()
    said = [f"{' '.join(f'{axis.name}:{axis.extent}' for axis in cut.axes)} by {cut.take} {cut.steps}" for cut in cuts]
    return [*said, *([short(str(grid.kernel))] if grid else [])]


def short(content: str | bytes) -> str:
    """A digest."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def main(tree: Path, models: Path, out: Path) -> int:
    """Exit status: 0, or WRONG_COMPILER where a module of another tree was loaded."""
    every: list[Found] = []
    draft = out.with_suffix(f".{os.getpid()}.part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for model, inner, asked in json.loads((models / "asked.json").read_text()):
            data = (models / f"{model}.onnx").read_bytes()
            try:
                for found, text in found_in(data, model, asked, inner=inner):
                    archive.writestr(found.name, text)
                    every.append(found)
            except Exception as error:  # which the other side may not have
                text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
                every.append(Found(f"{model} fails", "", {"error": short(f"{type(error).__name__}: {error}")}))
                archive.writestr(every[-1].name, text)
        archive.writestr(FOUND, json.dumps([asdict(one) for one in every]))
    ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "compiler"]
    if strangers := sorted(str(place) for place in ours if not place or not Path(place).is_relative_to(tree)):
        print(f"loaded from elsewhere than {tree}: {', '.join(strangers)}", file=sys.stderr)
        return WRONG_COMPILER
    draft.replace(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
