"""The devices of a job that names several: `cpu:0`, `cpu:1@x86-64-v2`, `cuda:0`; or `cpu`, `npu:ethos-u65-256`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.contract import kinds
from compiler.contract.refusals import Refused
from compiler.errors import OptionsError

MOST_DEVICES = 8
OBJECTIVES = ("latency", "throughput")
EXAMPLE = ("cpu:0", "cpu:1@x86-64-v2")
WITHIN = {"latency_ms": 30.0}
"""An objective by example: the most frames per second of what ends a frame by itself within 30 ms."""
MOST_MS = 1e9
HOST = "cpu"
"""All cores of the machine that compiles, together."""
MODELLED_CORES = ("cpu:cortex-a53", "cpu:cortex-a76")
"""Cores as they stand beside accelerators: what programs take there is modelled."""
BESIDE_EXAMPLE = (HOST, "npu:ethos-u65-256")
_NAME = re.compile(rf"cpu:([0-9]{{1,4}})(?:@({kinds.PROFILE}))?")


@dataclass(frozen=True)
class Within:
    """The objective of the greatest throughput whose latency is at most so many milliseconds."""

    latency_ms: float

    def to_json(self) -> dict[str, float]:
        """As options give it."""
        return {"latency_ms": self.latency_ms}

    def __str__(self) -> str:
        return f"latency_ms={self.latency_ms:g}"


def objective_of(value: Any) -> str | Within:
    """What several devices are to make as good as they can, as options give it. Raises Refused."""
    if isinstance(value, Within):
        value = value.to_json()
    if isinstance(value, str) and value in OBJECTIVES:
        return value
    shown = f"{', '.join(map(json.dumps, OBJECTIVES))} or {json.dumps(WITHIN)}"
    if not isinstance(value, Mapping):
        raise Refused("no such objective is known", f"use one of {shown}")
    bound = value.get("latency_ms")
    if {*value} != {"latency_ms"} or isinstance(bound, bool) or not isinstance(bound, int | float):
        raise Refused("an objective that is an object has latency_ms alone, a number", f"use one of {shown}")
    if not 0 < bound <= MOST_MS:
        raise Refused("no inference can take so long", f"give milliseconds above 0 and at most {MOST_MS:g}")
    return Within(float(bound))


@dataclass(frozen=True)
class NamedDevice:
    """A core by its number among those that a process may use, from 0, perhaps held to the instructions of a profile.

    Or what is no single core: all of them together, the first device that the process sees of a kind that stands
    beside the CPU, or an accelerator that models are compiled whole for and the CPU beside it. Then `core` is None.

    `target` is what is compiled for it: `cpu`, this machine, or that profile; the kind, for what is beside the CPU.
    """

    core: int | None
    target: str

    @property
    def is_beside(self) -> bool:
        """Whether it stands beside the CPU."""
        return kinds.of(self.target).accelerator

    @staticmethod
    def of(name: str) -> NamedDevice:
        """The device of a name. Raises OptionsError for one that cannot take part in a plan with others."""
        found, kind = _NAME.fullmatch(name), kinds.find(name)
        if name == kinds.CPU.name:
            return NamedDevice(None, name)
        if kind and kind.accelerator and (number := kind.index_of(name)) is not None:
            if number:
                raise OptionsError(
                    f"device {name} cannot be used: a plan for several devices has one {kind.title} device",
                    fix=f"name it {kind.device()}: the first one that the process of the worker sees",
                )
            return NamedDevice(None, kind.name)
        if not found:
            said = f"devices of kind {kind.name!r} cannot" if kind and kind.name != "cpu" else f"{name!r:.80} cannot"
            raise OptionsError(
                f"{said} be one of several devices: only cores and a GPU can",
                fix=f"name cores, cpu:N or cpu:N@PROFILE, such as {' and '.join(EXAMPLE)}, and {kinds.CUDA.device()}; "
                "or leave devices out, and name the one device as target",
            )
        return NamedDevice(int(found[1]), f"cpu:{found[2]}" if found[2] else "cpu")


def named_devices(names: Sequence[str]) -> tuple[NamedDevice, ...]:
    """The devices of a job, in order.

    Raises OptionsError for one alone, for too many, for one named twice, and where an accelerator that models are
    compiled whole for has anything but one CPU beside it.
    """
    if compiled_for("", names):
        return _with_accelerator(names)
    devices = tuple(map(NamedDevice.of, names))
    if names and not 2 <= len(names) <= MOST_DEVICES:
        raise OptionsError(
            f"option devices has {len(names)} entries, and takes 2 to {MOST_DEVICES}",
            fix=f"name as many, such as {' and '.join(EXAMPLE)}; a single device is a target: leave devices out",
        )
    if kinds.CPU.name in names and any(one.core is not None for one in devices):
        raise OptionsError(
            "option devices has both cpu, which means all cores, and single cores",
            fix="name either cpu or single cores",
        )
    places = [f"core {one.core}" if one.core is not None else kinds.of(one.target).device() for one in devices]
    for at, place in enumerate(places):
        if place in places[:at]:
            raise OptionsError(f"option devices has {place} twice", fix="name each device once")
    return devices


def _with_accelerator(names: Sequence[str]) -> tuple[NamedDevice, ...]:
    cpus = [name for name in names if name in (HOST, *MODELLED_CORES)]
    others = [name for name in names if name not in cpus]
    if len(cpus) != 1 or len(others) != 1:
        raise OptionsError(
            f"option devices has {', '.join(names):.200}, and {compiled_for('', names)} works with exactly one CPU",
            fix=f"name two, such as {json.dumps(BESIDE_EXAMPLE)}; its CPU is {HOST} or {' or '.join(MODELLED_CORES)}",
        )
    if not re.fullmatch(kinds.target_pattern(), others[0]):
        raise OptionsError(
            f"device {others[0]!r:.80} has no profile", fix=f"name it with one, such as {BESIDE_EXAMPLE[-1]}"
        )
    return tuple(NamedDevice(None, name) for name in names)


def held(target: str, devices: Sequence[str]) -> str:
    """The target whose device a worker must hold for a job: with several devices, that of the one beside the CPU."""
    beside = (kind.name for kind in map(kinds.find, devices) if kind and kind.accelerator)
    return next(beside, compiled_for(target, devices))


def compiled_for(target: str, devices: Sequence[str]) -> str:
    """The target of which a kind that compiles models whole is asked: that of such an accelerator among the devices.

    Without one it is the target.
    """
    return next((name for name in devices if (kind := kinds.find(name)) and kind.whole), target)
