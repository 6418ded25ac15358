"""Accelerators that another compiler compiles for, as a kind of device: a `worker.devices.holder.Holder`.

No worker holds one. Whoever works on the cores of a machine compiles for all of them, and runs their artifacts there,
where what that takes is installed (the extra `npu`); elsewhere there are no such targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata, util
from typing import Any

from compiler.accelerate.chips import CHIPS, TARGETS
from compiler.accelerate.vela import VERSION
from compiler.contract import kinds
from compiler.errors import TargetUnavailable
from worker.devices.holder import Held

INSTALL = "pip install 'tilewright[npu]' where the worker is"


def installed() -> bool:
    """Whether Vela, in the version that the compiler knows, and LiteRT are here."""
    try:
        return metadata.version("ethos-u-vela") == VERSION and util.find_spec("ai_edge_litert") is not None
    except metadata.PackageNotFoundError:
        return False


def profiles() -> list[str]:
    """Their names; none where they cannot be compiled for."""
    return list(TARGETS) if installed() else []


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each profile."""
    return [
        {
            "name": chip.target,
            "description": f"Arm {chip.family} of {chip.macs} multiplications a cycle: models in int8, by Vela; "
            "times are estimated",
            "macs": chip.macs,
            "system": chip.system,
            "memory_mode": chip.memory_mode,
            "precisions": list(kinds.NPU.precisions),
        }
        for chip in CHIPS
        if installed()
    ]


def held(index: int) -> Held:
    """Always raises TargetUnavailable: artifacts for accelerators are run on cores."""
    raise TargetUnavailable(
        "no worker holds an accelerator: models are compiled for it, and run, on cores",
        fix=f"ask for cpu or build; {INSTALL}",
    )


def compilable(compiler: str) -> list[str]:
    """All profiles or none: no C compiler is needed."""
    return profiles()


def environment(device: str) -> dict[str, str]:
    """None."""
    return {}


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """None: nothing is measured."""
    return None
