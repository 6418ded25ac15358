"""The GPU of a worker, known without starting CUDA in the worker: a process of its own asks the driver, and each job has the GPU to itself.

What a process may see of GPUs is said by its environment (`environment`), so to a job its GPU is the only one and the first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.target import Gpu
from compiler.errors import TargetUnavailable
from worker import inquiry

CUDA = "cuda"
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Held:
    """A worker's GPU: `nvml` holds what NVML says of it, None where NVML or `nvidia-ml-py` is missing."""

    index: int
    gpu: Gpu
    nvml: Mapping[str, Any] | None

    @property
    def device(self) -> str:
        """What the lock and the workers' table call it."""
        return f"{CUDA}:{self.index}"

    @property
    def target(self) -> str:
        """The profile of its architecture. Raises TargetUnavailable where there is none."""
        return cuda.resolve(CUDA, self.gpu).name

    def facts(self) -> dict[str, Any]:
        """What the workers' table says of it."""
        gpu = self.gpu
        return {
            "name": gpu.name,
            "capability": ".".join(map(str, gpu.capability)),
            "multiprocessors": gpu.multiprocessors,
            "memory_bytes": gpu.memory_bytes,
            "l2_bytes": gpu.l2_bytes,
            "clock_mhz": round(1000 * gpu.clock_ghz),
            "nvml": dict(self.nvml) if self.nvml is not None else None,
        }


def index_of(device: str) -> int | None:
    """Which GPU a device is called after: 0 for `cuda`, n for `cuda:n`; None for what is no GPU."""
    kind, _, number = device.partition(":")
    if kind != CUDA:
        return None
    return 0 if not number else int(number) if number.isdecimal() else None


def environment(device: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """By which a job sees the GPU of this name alone, and a job of another device none.

    own  the worker's environment: where it sees some GPUs only, the number counts among these; else as `nvidia-smi` counts, by the PCI bus

    Raises TargetUnavailable when it does not see so many.
    """
    own = os.environ if own is None else own
    index = index_of(device)
    if index is None:
        return {VISIBLE: ""}
    seen = [name.strip() for name in own[VISIBLE].split(",") if name.strip()] if VISIBLE in own else None
    if seen is not None and index >= len(seen):
        raise TargetUnavailable(
            f"there is no GPU {index}: {VISIBLE} names {len(seen)}", fix=f"set {VISIBLE}, or ask for another queue"
        )
    kept = {name: own[name] for name in ("LD_LIBRARY_PATH", ORDER) if name in own}
    if seen is not None:
        return {**kept, VISIBLE: seen[index]}
    return {ORDER: "PCI_BUS_ID", **kept, VISIBLE: str(index)}


def held(index: int) -> Held:
    """The GPU of this number. Raises TargetUnavailable with the driver's reason where it cannot be used."""
    visible = environment(f"{CUDA}:{index}")
    try:
        facts = inquiry.answer("compiler.devices.cuda.measure.facts", "0", environment=visible)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TargetUnavailable(f"GPU {index} cannot be asked: {error}", fix="see what nvidia-smi says") from error
    if "refusal" in facts:
        raise TargetUnavailable(
            f"GPU {index} cannot be used: {facts['refusal']}", fix="install the NVIDIA driver, or ask for another queue"
        )
    gpu = facts["gpu"]
    return Held(index, Gpu(**{**gpu, "capability": tuple(gpu["capability"])}), facts["nvml"])
