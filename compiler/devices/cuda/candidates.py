"""CUDA kernels compiled one at a time, each once, and what speaks against them before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.codegen.build import small_header
from compiler.codegen.calls import function_name
from compiler.codegen.digest import source_digest
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.model import code_of
from compiler.devices.cuda.nvrtc import OPTIONS, Resources, compile_cuda, headers
from compiler.devices.cuda.target import CODE_CACHE, CudaTarget
from compiler.errors import ToolchainFailed
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.schedule.gpu.code import Code

KIB = 1024


@dataclass(frozen=True)
class Candidate:
    """One way to carry out one workload, compiled: the cubin that holds it, and what it needs."""

    lowered: CudaLowered
    image: bytes
    resources: Resources

    def code(self, target: CudaTarget) -> Code:
        """Its machine code, which kernels of one text share."""
        return code_of(self.lowered.text, self.resources.code_bytes, target)

    @property
    def shared_bytes(self) -> int:
        """Of one block, static and dynamic."""
        return self.lowered.shared_bytes + self.resources.static_shared_bytes

    @property
    def spilled_bytes(self) -> int:
        """Stored by one thread because it has too few registers."""
        return self.resources.spill_store_bytes + self.resources.spill_load_bytes

    def fits(self, target: CudaTarget) -> bool:
        """Whether a multiprocessor can hold one of its blocks."""
        if self.shared_bytes > target.block_shared_bytes:
            return False
        return target.blocks_at_once(self.lowered.block, self.resources.registers, self.shared_bytes) > 0

    def is_sound(self, target: CudaTarget) -> bool:
        """Whether it is worth measuring: a multiprocessor holds a block and the code, and nothing spills."""
        return self.fits(target) and not self.spilled_bytes and self.resources.code_bytes <= CODE_CACHE

    def __str__(self) -> str:
        spills = f", {self.spilled_bytes} bytes spilled" if self.spilled_bytes else ""
        long = self.resources.code_bytes > CODE_CACHE
        code = f", {self.resources.code_bytes / KIB:.0f} KiB of code" if long else ""
        shared = f", {self.shared_bytes / KIB:.1f} KiB shared" if self.shared_bytes else ""
        return f"{self.resources.registers} registers x {self.lowered.block} threads{shared}{spills}{code}"


@dataclass(frozen=True)
class Candidates:
    """Those of one target so far. Kernels with one source share one compilation; it may be used by several threads."""

    target: CudaTarget
    _lowered: dict[tuple[Workload, Tile], CudaLowered] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _compiled: dict[str, tuple[bytes, Resources]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def lowered(self, workload: Workload, tile: Tile) -> CudaLowered:
        """The kernel's source, whatever the operators of the model are called."""
        place = workload.nameless, tile
        if place not in self._lowered:
            self._lowered[place] = lower_cuda(function_name(workload, 0), workload, tile, self.target)
        return self._lowered[place]

    def source_of(self, workload: Workload, tile: Tile) -> str:
        """What identifies the kernel's code and how it is launched (`source_digest`)."""
        lowered = self.lowered(workload, tile)
        launch = (lowered.grid, lowered.block, lowered.cluster, lowered.shared_bytes, lowered.scratch_bytes)
        facts = (OPTIONS, self.target.architecture, *launch, lowered.counters, sorted(lowered.packings.items()))
        included = {**headers(), **small_header((lowered.text,))}
        return source_digest(lowered.name, PREAMBLE + lowered.text, included, facts)

    def compiled(self, workload: Workload, tile: Tile) -> Candidate:
        """The kernel for this target's architecture. Raises ToolchainMissing, ToolchainFailed."""
        lowered = self.lowered(workload, tile)
        if lowered.text not in self._compiled:
            unit = compile_cuda(PREAMBLE + lowered.text, self.target.architecture, f"{lowered.name}.cu")
            self._compiled[lowered.text] = unit.image, unit.kernels[lowered.name]
        return Candidate(lowered, *self._compiled[lowered.text])

    def known(self, workload: Workload, tile: Tile) -> Candidate | None:
        """The kernel if it was compiled before."""
        lowered = self._lowered.get((workload.nameless, tile))
        if lowered is None or lowered.text not in self._compiled:
            return None
        return Candidate(lowered, *self._compiled[lowered.text])

    def sound(self, workload: Workload, tile: Tile) -> Candidate | None:
        """The kernel if NVRTC takes it and it is worth measuring."""
        try:
            candidate = self.compiled(workload, tile)
        except ToolchainFailed:
            return None
        return candidate if candidate.is_sound(self.target) else None
