"""Which queues a worker serves: what the names on its command line stand for on this machine.

`cpu` is a device worker: jobs for this machine and every profile it can run, and whatever runs artifacts of these. `build`
is a builder: every profile that the C compiler here makes code for, measured nowhere. Any other name is one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.build import build_library, find_toolchain
from compiler.errors import TargetUnavailable, ToolchainFailed, ToolchainMissing
from compiler.targets import cpu
from service.jobs.runs import RUN
from service.logs import logger

DEVICE, BUILD, CUDA = "cpu", "build", "cuda"
PROBE = {"probe.c": "int tw_probe(void) { return 0; }\n"}

log = logger(__name__)


@dataclass(frozen=True)
class Queues:
    """names in the order given; `measures`: jobs of these queues use this machine's device, one at a time."""

    names: tuple[str, ...]
    measures: bool


def resolve(asked: Sequence[str], compiler: str = "") -> Queues:
    """The queues that these names stand for, each once.

    compiler  the C compiler of the user's choice, or nothing

    Raises `TargetUnavailable` for CUDA, for a name that is no queue, and when nothing is left to serve.
    """
    names: dict[str, None] = {}
    for name in asked:
        names.update(dict.fromkeys(_stands_for(name, compiler)))
    if not names:
        raise TargetUnavailable(
            f"this machine can serve no queue of {', '.join(asked)}", fix="install a C compiler, or ask for cpu"
        )
    own = {DEVICE, *_runnable()}
    explicit = {name for name in asked if name != BUILD}
    measures = any(name in own or name.startswith(RUN) for name in explicit)
    return Queues(tuple(names), measures)


def _stands_for(name: str, compiler: str) -> list[str]:
    targets = [DEVICE, *(profile.name for profile in cpu.PROFILES)]
    if name == DEVICE:
        own = [DEVICE, *_runnable()]
        return [*own, *(RUN + target for target in own)]
    if name == BUILD:
        return compilable(compiler)
    if name.removeprefix(RUN).partition(":")[0] == CUDA:
        raise TargetUnavailable(
            f"queue {name!r} needs a CUDA target, which this version has not", fix=f"use {DEVICE} or {BUILD}"
        )
    if name.removeprefix(RUN) not in targets:
        raise TargetUnavailable(
            f"queue {name!r} is unknown", fix=f"use {BUILD}, or one of {', '.join(targets)}, or {RUN} and one of these"
        )
    return [name]


def _runnable() -> list[str]:
    return [profile.name for profile in cpu.PROFILES if cpu.runs_here(profile)]


def compilable(compiler: str) -> list[str]:
    """The profiles that the C compiler here makes a library for: each is tried. Empty, and logged, when there is no C compiler."""
    try:
        toolchain = find_toolchain(compiler)
    except ToolchainMissing as error:
        log.warning("this worker cannot build", reason=error.message, fix=error.fix)
        return []
    able = []
    for profile in cpu.PROFILES:
        try:
            build_library(PROBE, profile, toolchain, jobs=1)
        except ToolchainFailed:
            continue
        able.append(profile.name)
    return able
