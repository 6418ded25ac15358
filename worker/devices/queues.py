"""Which queues a worker serves: what the names on its command line stand for on this machine.

The name of a device, `cpu` or `cuda:0`, makes a device worker: jobs for "the device here" and for each profile that it
runs, and whatever runs artifacts of these. The worker of the cores also serves targets whose models are compiled whole,
where their compiler is installed: their artifacts run on cores. `build` is a builder: every profile of every kind that
the compilers here make code for, measured nowhere. Any other name is one queue. What there is of each kind of device
says its `worker.devices.holder.Holder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.contract import Kind, kinds
from compiler.errors import TargetUnavailable
from service.jobs.submission.runs import RUN
from worker.devices.device import NO_DEVICE
from worker.devices.holder import Held, holder, profiles

BUILD = "build"


@dataclass(frozen=True)
class Queues:
    """names in the order given; jobs of these queues use the device `held`, one at a time; None for a builder."""

    names: tuple[str, ...]
    held: Held | None = None

    @property
    def device(self) -> str:
        """What the device is called; NO_DEVICE for a builder."""
        return self.held.device if self.held is not None else NO_DEVICE

    @property
    def measures(self) -> bool:
        """Whether there is a device."""
        return self.held is not None


def resolve(asked: Sequence[str], compiler: str = "") -> Queues:
    """The queues that these names stand for, each once.

    compiler  the C compiler of the user's choice, or nothing

    Raises `TargetUnavailable` for a device that cannot be used, for a name that is no queue, for two devices, and when
    nothing is left to serve.
    """
    held = _device_of(asked)
    names: dict[str, None] = {}
    for name in asked:
        names.update(dict.fromkeys(_stands_for(name, compiler, held)))
    if not names:
        raise TargetUnavailable(
            f"this machine can serve no queue of {', '.join(asked)}", fix="install a C compiler, or ask for cpu"
        )
    return Queues(tuple(names), held)


def _device_of(asked: Sequence[str]) -> Held | None:
    """The device that these queues need: one that is named, or the first of its kind for what runs on any.

    None where they need none.

    The name of a profile alone is a builder's where the first device of its kind does not run it.
    """
    devices: dict[tuple[Kind, int], Held | None] = {needed: None for name in asked for needed in _needs(name)}
    for name in asked:
        kind = kinds.find(name)
        if kind is not None and all(kind != other for other, _ in devices):
            first = _first_that_runs(kind, name)
            devices |= {(kind, 0): first} if first is not None else {}
    if len(devices) > 1:
        raise TargetUnavailable(
            f"one worker holds one device, and {', '.join(asked)} are of {len(devices)}", fix="start a worker for each"
        )
    for (kind, index), held in devices.items():
        return held or holder(kind).held(index)
    return None


def _needs(name: str) -> list[tuple[Kind, int]]:
    """The device that a queue cannot be served without, None if it needs none.

    That which it names, or any that runs artifacts.
    """
    kind = kinds.find(name.removeprefix(RUN))
    if kind is None:
        return []
    if kind.whole and name.startswith(RUN):
        return [(kinds.CPU, 0)]
    index = 0 if name.startswith(RUN) else kind.index_of(name)
    return [] if index is None else [(kind, index)]


def _first_that_runs(kind: Kind, profile: str) -> Held | None:
    """The first device of a kind, where it is here and runs the profile."""
    try:
        first = holder(kind).held(0)
        return first if profile in first.targets else None
    except TargetUnavailable:
        return None


def _stands_for(name: str, compiler: str, held: Held | None) -> list[str]:
    if name == BUILD:
        return [profile for kind in kinds.KINDS for profile in holder(kind).compilable(compiler)]
    kind = kinds.find(name)
    if kind is not None and kind.index_of(name) is not None:
        assert held is not None
        built = [kind.name, *held.targets] if held.compiles(compiler) else []
        return [*built, *_whole(held), *_runs(held)]
    known = [*(kind.name for kind in kinds.KINDS if kind.here), *profiles()]
    if name.removeprefix(RUN) not in known:
        devices = ", ".join(
            kind.device() + (" or another number" if kind.accelerator else "") for kind in kinds.KINDS if kind.here
        )
        raise TargetUnavailable(
            f"queue {name!r} is unknown",
            fix=f"use {BUILD}, {devices}, or one of {', '.join(known)}, or {RUN} and one of these",
        )
    if name.startswith(RUN) and held is not None and name not in _runs(held):
        own = RUN + kinds.name_of(held.device)
        raise TargetUnavailable(f"queue {name!r} is for another device than this machine's", fix=f"use {own}")
    return [name]


def _runs(held: Held) -> list[str]:
    return [RUN + target for target in (kinds.name_of(held.device), *held.targets, *_whole(held))]


def _whole(held: Held) -> list[str]:
    """The targets whose models are compiled whole, which the worker of the cores serves too."""
    if held.device != kinds.CPU.device():
        return []
    return [profile for kind in kinds.KINDS if kind.whole for profile in holder(kind).profiles()]
