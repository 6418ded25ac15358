"""The devices of a job that names several: `cpu:0`, `cpu:1@x86-64-v2`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.contract import kinds
from compiler.errors import OptionsError

MOST_DEVICES = 8
OBJECTIVES = ("latency", "throughput")
EXAMPLE = ("cpu:0", "cpu:1@x86-64-v2")
_NAME = re.compile(rf"cpu:([0-9]{{1,4}})(?:@({kinds.PROFILE}))?")


@dataclass(frozen=True)
class NamedDevice:
    """A core by its number among those that a process may use, from 0, perhaps held to the instructions of a profile.

    `target` is what is compiled for it: `cpu`, this machine, or that profile.
    """

    core: int
    target: str

    @staticmethod
    def of(name: str) -> NamedDevice:
        """The device of a name. Raises OptionsError for one that cannot take part in a plan with others."""
        found = _NAME.fullmatch(name)
        if not found:
            kind = kinds.find(name)
            said = f"devices of kind {kind.name!r} cannot" if kind and kind.name != "cpu" else f"{name!r:.80} cannot"
            raise OptionsError(
                f"{said} take part in a plan with others yet: cores can",
                fix=f"name cores, cpu:N or cpu:N@PROFILE, such as {' and '.join(EXAMPLE)}; "
                "or leave devices out, and name the one device as target",
            )
        return NamedDevice(int(found[1]), f"cpu:{found[2]}" if found[2] else "cpu")


def named_devices(names: Sequence[str]) -> tuple[NamedDevice, ...]:
    """The devices of a job, in order. Raises OptionsError for one alone, for too many, and for a core named twice."""
    devices = tuple(map(NamedDevice.of, names))
    if names and not 2 <= len(names) <= MOST_DEVICES:
        raise OptionsError(
            f"devices names {len(names)}, and a plan for several has 2 to {MOST_DEVICES}",
            fix=f"name as many, such as {' and '.join(EXAMPLE)}; a single device is a target: leave devices out",
        )
    cores = [device.core for device in devices]
    for at, core in enumerate(cores):
        if core in cores[:at]:
            raise OptionsError(f"devices names core {core} twice", fix="name each core once")
    return devices
