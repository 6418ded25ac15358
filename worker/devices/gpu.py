"""The GPU of a worker, a `worker.devices.holder.Holder`, known without starting CUDA in the worker.

A process of its own asks the driver, and each job has the GPU to itself.

What a process may see of GPUs is set by its environment (`environment`), so a job sees its GPU as the only one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.contract import kinds
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.target import Gpu
from compiler.errors import TargetUnavailable
from worker import inquiry
from worker.devices import cuda_builds, toolchain

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
        return kinds.CUDA.device(self.index)

    @property
    def target(self) -> str:
        """The profile of its architecture. Raises TargetUnavailable where there is none."""
        return cuda.resolve(kinds.CUDA.name, self.gpu).name

    @property
    def targets(self) -> list[str]:
        """Its architecture alone. Raises TargetUnavailable where there is no profile of it."""
        return [self.target]

    def compiles(self, compiler: str) -> bool:
        """Whether NVRTC and a C compiler are here; without them its worker runs artifacts only."""
        return self.target in compilable(compiler)

    def facts(self) -> dict[str, Any]:
        """What the workers' table says of it; `gpu` has what driver and NVML say."""
        return {
            "target": self.target,
            "fingerprint": self.gpu.fingerprint,
            "cores": os.cpu_count() or 1,
            "gpu": self._as_json(),
        }

    def _as_json(self) -> dict[str, Any]:
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


def profiles() -> list[str]:
    """Their names."""
    return [profile.name for profile in cuda.PROFILES]


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each profile; numbers are those of `product`."""
    return [
        {
            "name": profile.name,
            "description": "NVIDIA GPUs of compute capability {}.{}, such as {}".format(
                *profile.capability, profile.product
            ),
            "architecture": profile.architecture,
            "product": profile.product,
            "multiprocessors": profile.multiprocessors,
            "memory_bytes": profile.memory_bytes,
            "l2_bytes": profile.l2_bytes,
            "shared_bytes": profile.shared_bytes,
            "precisions": list(kinds.CUDA.precisions),
        }
        for profile in cuda.PROFILES
    ]


def compilable(compiler: str) -> list[str]:
    """The profiles that NVRTC makes kernels for, where a C compiler makes their host."""
    return cuda_builds.able() if toolchain.usable(compiler) is not None else []


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """As `devices.holder.Holder` says: the worker that holds a GPU measures what is for it or its architecture."""
    holds = kinds.name_of(str(hardware.get("device"))) == kinds.CUDA.name
    if not holds or target not in (kinds.CUDA.name, hardware["target"]):
        return None
    return str(hardware["target"]), str(hardware["fingerprint"])


def environment(device: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """By which a job sees the GPU of this name alone, and a job of another device none.

    own  the worker's environment: where it sees some GPUs only, the number counts among these; else as `nvidia-smi`
         counts, by the PCI bus

    Raises TargetUnavailable when it does not see so many.
    """
    own = os.environ if own is None else own
    index = kinds.CUDA.index_of(device)
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
    visible = environment(kinds.CUDA.device(index))
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
