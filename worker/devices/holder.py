"""What a worker asks of a kind of device, whatever kind it is.

The module that `Kind.holder` names answers as `Holder`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from compiler.contract import Kind, kinds


class Held(Protocol):
    """A device of this machine."""

    @property
    def device(self) -> str:
        """What the lock and the workers' table call it: `cpu`, `cuda:0`."""
        ...

    @property
    def targets(self) -> Sequence[str]:
        """The profiles that run on it, best first."""
        ...

    def compiles(self, compiler: str) -> bool:
        """Whether its worker compiles for it too, with the C compiler of the user's choice, or none."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What the workers' table says of it, with `target`, `fingerprint` and `cores`."""
        ...


class Holder(Protocol):
    """A kind of device, as a worker deals with it."""

    def profiles(self) -> Sequence[str]:
        """The names of the targets that can be compiled for on any machine."""
        ...

    def entries(self) -> Sequence[dict[str, Any]]:
        """What the catalogue of targets says of each profile."""
        ...

    def held(self, index: int) -> Held:
        """The device of this number. Raises `TargetUnavailable` where it cannot be used."""
        ...

    def compilable(self, compiler: str) -> Sequence[str]:
        """The profiles that the compilers here make code for; `compiler` is the user's C compiler, or nothing."""
        ...

    def environment(self, device: str) -> Mapping[str, str]:
        """Variables by which a job sees of this kind the `device` that its worker holds, or none.

        The device may be of whatever kind. Raises `TargetUnavailable` where there is no such device.
        """
        ...

    def measured_as(self, target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
        """Target and hardware as records of a compilation for `target` name them; None when nothing is measured here.

        hardware  what the workers' table says of this worker
        """
        ...


def holder(kind: Kind) -> Holder:
    """Of a kind. The module is loaded when it is asked for."""
    return cast(Holder, importlib.import_module(kind.holder))


def profiles() -> list[str]:
    """The names of all kinds' profiles."""
    return [name for kind in kinds.KINDS for name in holder(kind).profiles()]


def environment(device: str) -> dict[str, str]:
    """Variables by which a job sees the device that its worker holds, and no other accelerator.

    Raises `TargetUnavailable`.
    """
    return {name: value for kind in kinds.KINDS for name, value in holder(kind).environment(device).items()}
