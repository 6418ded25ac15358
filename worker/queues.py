"""Which queues a worker serves: what the names on its command line stand for on this machine.

`cpu` is a device worker: jobs for this machine and every profile it can run, and whatever runs artifacts of these. `cuda:0` is one for
the first GPU, `cuda:1` for the second: jobs for "the GPU here" and for its architecture, and whatever runs artifacts of these. `build`
is a builder: every profile that the C compiler, and NVRTC, here make code for, measured nowhere. Any other name is one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.build import Toolchain, find_toolchain
from compiler.devices.cpu import target as cpu
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.kinds import PROFILES
from compiler.errors import TargetUnavailable, ToolchainFailed, ToolchainMissing
from service.jobs.runs import RUN
from service.logs import logger
from worker import cuda_builds, gpu
from worker.device import NO_DEVICE

DEVICE, BUILD, CUDA = "cpu", "build", gpu.CUDA
PROBE = {"probe.c": "int tw_probe(void) { return 0; }\n"}

log = logger(__name__)


@dataclass(frozen=True)
class Queues:
    """names in the order given; jobs of these queues use `device`, one at a time, which is `gpu` if it is a GPU."""

    names: tuple[str, ...]
    device: str
    gpu: gpu.Held | None = None

    @property
    def measures(self) -> bool:
        """Whether there is a device."""
        return self.device != NO_DEVICE


def resolve(asked: Sequence[str], compiler: str = "") -> Queues:
    """The queues that these names stand for, each once.

    compiler  the C compiler of the user's choice, or nothing

    Raises `TargetUnavailable` for a GPU that cannot be used, for a name that is no queue, for two devices, and when nothing is left to serve.
    """
    held = _gpu_of(asked)
    names: dict[str, None] = {}
    for name in asked:
        names.update(dict.fromkeys(_stands_for(name, compiler, held)))
    if not names:
        raise TargetUnavailable(
            f"this machine can serve no queue of {', '.join(asked)}", fix="install a C compiler, or ask for cpu"
        )
    uses_cpu = any(name in {DEVICE, *_runnable()} or _kind(name, RUN) == DEVICE for name in asked)
    if held is not None and uses_cpu:
        raise TargetUnavailable(
            f"one worker holds one device, and {', '.join(asked)} are of two", fix="start a worker for each"
        )
    return Queues(tuple(names), held.device if held else DEVICE if uses_cpu else NO_DEVICE, held)


def _kind(name: str, prefix: str = "") -> str:
    """`cpu` or `cuda`, of a queue that begins with the prefix; empty for any other."""
    return name.removeprefix(prefix).partition(":")[0] if name.startswith(prefix) else ""


def _gpu_of(asked: Sequence[str]) -> gpu.Held | None:
    """The GPU that these queues need: the one that is named, or the first for what runs on any. None where they need none.

    A name such as `cuda:sm_90` alone is a builder's where the first GPU is not of that kind.
    """
    named = {index for name in asked if (index := gpu.index_of(name)) is not None}
    if len(named) > 1:
        raise TargetUnavailable(
            f"one worker holds one GPU, and {', '.join(asked)} are of {len(named)}", fix="start a worker for each"
        )
    if named or any(_kind(name, RUN) == CUDA and name.startswith(RUN) for name in asked):
        return gpu.held(named.pop() if named else 0)
    profiles = [name for name in asked if _kind(name) == CUDA]
    try:
        held = gpu.held(0) if profiles else None
        return held if held is not None and held.target in profiles else None
    except TargetUnavailable:
        return None


def _stands_for(name: str, compiler: str, held: gpu.Held | None) -> list[str]:
    if name == DEVICE:
        own = [DEVICE, *_runnable()]
        return [*own, *(RUN + target for target in own)]
    if name == BUILD:
        return compilable(compiler)
    if gpu.index_of(name) is not None:
        return _of_gpu(compiler, held)
    targets = [DEVICE, CUDA, *(profile.name for profile in PROFILES)]
    if name.removeprefix(RUN) not in targets:
        raise TargetUnavailable(
            f"queue {name!r} is unknown",
            fix=f"use {BUILD}, {CUDA}:0 or another GPU's number, or one of {', '.join(targets)}, or {RUN} and one of these",
        )
    if name.startswith(RUN) and _kind(name, RUN) == CUDA and name not in _runs(held):
        raise TargetUnavailable(f"queue {name!r} is for another GPU than this machine's", fix=f"use {RUN}{CUDA}")
    return [name]


def _runs(held: gpu.Held | None) -> list[str]:
    return [RUN + CUDA, RUN + held.target] if held is not None else []


def _of_gpu(compiler: str, held: gpu.Held | None) -> list[str]:
    """A GPU's queues: what compiles for it, where NVRTC and a C compiler are here, and what runs artifacts of it."""
    assert held is not None
    built = [CUDA, held.target] if held.target in compilable_cuda(compiler) else []
    return [*built, *_runs(held)]


def _runnable() -> list[str]:
    return [profile.name for profile in cpu.PROFILES if cpu.runs_here(profile)]


def compilable(compiler: str) -> list[str]:
    """The profiles that the compilers here make a library for: each is tried. Empty, and logged, when there is no C compiler."""
    toolchain = _toolchain(compiler)
    if toolchain is None:
        return []
    able = []
    for profile in cpu.PROFILES:
        try:
            build_library(PROBE, profile, toolchain, jobs=1)
        except ToolchainFailed:
            continue
        able.append(profile.name)
    return able + compilable_cuda(compiler)


def compilable_cuda(compiler: str) -> list[str]:
    """The CUDA profiles that NVRTC makes kernels for, where a C compiler makes their host."""
    return cuda_builds.able() if _toolchain(compiler) is not None else []


def _toolchain(compiler: str) -> Toolchain | None:
    try:
        return find_toolchain(compiler)
    except ToolchainMissing as error:
        log.warning("this worker cannot build", reason=error.message, fix=error.fix)
        return None
