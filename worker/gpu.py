"""The GPU of a worker, known without starting CUDA in the worker: a process of its own asks the driver, and each job has the GPU to itself.

What a process may see of GPUs is said by its environment (`environment`), so to a job its GPU is the only one and the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.errors import TargetUnavailable
from compiler.targets import cuda
from compiler.targets.cuda import Gpu

CUDA = "cuda"
PATIENCE_S = 120.0
"""For a driver that has to wake the device."""
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


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

    own  the worker's environment: where it sees some GPUs only, the number counts among these

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
    libraries = {"LD_LIBRARY_PATH": own["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in own else {}
    return {**libraries, ORDER: own.get(ORDER, "PCI_BUS_ID"), VISIBLE: seen[index] if seen else str(index)}


def held(index: int) -> Held:
    """The GPU of this number. Raises TargetUnavailable with the driver's reason where it cannot be used."""
    own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        told = subprocess.run(
            [sys.executable, "-P", "-m", "compiler.measure.cuda.facts", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
            env={**own, **environment(f"{CUDA}:{index}")},
        )
        facts = json.loads(told.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TargetUnavailable(f"GPU {index} cannot be asked: {error}", fix="see what nvidia-smi says") from error
    if "refusal" in facts:
        raise TargetUnavailable(
            f"GPU {index} cannot be used: {facts['refusal']}", fix="install the NVIDIA driver, or ask for another queue"
        )
    gpu = facts["gpu"]
    return Held(index, Gpu(**{**gpu, "capability": tuple(gpu["capability"])}), facts["nvml"])
