"""What NVML says of a GPU: facts, clocks, throttling, memory.

Without the package `nvidia-ml-py` nothing is known, and nothing fails. It asks the driver's management library, makes
no CUDA context, and may be used in a process that must not have one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

IDLE, APPLICATION_CLOCKS, POWER_CAP, HARDWARE, SYNC_BOOST, HEAT, HARDWARE_HEAT, POWER_BRAKE, DISPLAY = (
    1 << bit for bit in range(9)
)
"""nvmlClocksEventReason...: why clocks are not higher."""
REASONS = {
    POWER_CAP: "power cap",
    HARDWARE: "hardware slowdown",
    SYNC_BOOST: "sync boost",
    HEAT: "heat",
    HARDWARE_HEAT: "heat (hardware)",
    POWER_BRAKE: "power brake",
}
"""Those that slow what is being measured. An idle device, and clocks that somebody fixed, are no reason to measure
again."""


@dataclass(frozen=True)
class Clock:
    """How fast a device runs at one moment: clocks in MHz, and what holds them down; None where NVML does not say."""

    multiprocessor_mhz: int | None = None
    memory_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    temperature_c: int | None = None
    power_w: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What the workers' table says of a GPU; clocks are the highest, in MHz."""

    device: str
    uuid: str
    bus: str
    capability: str
    memory_bytes: int
    multiprocessor_mhz: int | None
    memory_mhz: int | None
    driver: str

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)


class Sensors:
    """One device of NVML's; see `sensors`."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def clock(self) -> Clock:
        """Clocks, throttling, temperature and power now."""
        nvml, handle = self._nvml, self._handle
        # Two names of one question: older modules and drivers know the second one only.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        held = next((found for name in names if (found := self._ask(getattr(nvml, name, None), handle)) is not None), 0)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return Clock(
            multiprocessor_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            throttled=tuple(text for bit, text in REASONS.items() if held & bit),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
        )

    def facts(self) -> Facts:
        """What does not change."""
        nvml, handle = self._nvml, self._handle
        memory, pci = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle), self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return Facts(
            device=_text(self._ask(nvml.nvmlDeviceGetName, handle)),
            uuid=_text(self._ask(nvml.nvmlDeviceGetUUID, handle)),
            bus=_text(getattr(pci, "busId", "")),
            capability=".".join(map(str, capability or ())),
            memory_bytes=int(getattr(memory, "total", 0)),
            multiprocessor_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
            driver=_text(self._ask(nvml.nvmlSystemGetDriverVersion)),
        )

    def _ask(self, question: Any, *arguments: Any) -> Any:
        """The answer, None where this device or module has none."""
        if question is None:
            return None
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


@contextmanager
def sensors(device: int | str) -> Iterator[Sensors | None]:
    """The sensors of a device, by NVML's index or by its bus id; None where NVML or its Python module is missing."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield _sensors(nvml, device)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def count() -> int:
    """How many GPUs NVML sees in this machine; 0 where it cannot be asked."""
    with sensors(0) as found:
        return 0 if found is None else int(importlib.import_module("pynvml").nvmlDeviceGetCount())


def _sensors(nvml: Any, device: int | str) -> Sensors | None:
    try:
        if isinstance(device, str):
            return Sensors(nvml, nvml.nvmlDeviceGetHandleByPciBusId(device.encode()))
        return Sensors(nvml, nvml.nvmlDeviceGetHandleByIndex(device))
    except nvml.NVMLError:
        return None


def _text(found: Any) -> str:
    """Older modules answer in bytes."""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")
