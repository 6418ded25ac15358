"""What a report says of the GPU that artifacts ran on: its clocks before and after, its name and fingerprint."""

from __future__ import annotations

from typing import Any

from compiler.devices.cuda.measure.driver import bus_id, gpu_here
from compiler.devices.cuda.measure.nvml import Clock, sensors


def clock_now() -> Clock | None:
    """The clocks of this machine's first GPU; None where nobody says."""
    with sensors(bus_id(0) or 0) as found:
        return found.clock() if found else None


def gpu_report(before: Clock | None, after: Clock | None) -> dict[str, Any]:
    """The GPU, with its clocks before and after the runs."""
    gpu = gpu_here()
    major, minor = gpu.capability if gpu else (0, 0)
    return {
        "name": gpu.name if gpu else "",
        "target": f"cuda:sm_{major}{minor}",
        "hardware": gpu.fingerprint if gpu else "",
        "before": before.to_json() if before else None,
        "after": after.to_json() if after else None,
    }


def held_down(clock: Clock | None) -> list[str]:
    """A notice where the clocks were held down."""
    return [f"the GPU's clocks were held down: {', '.join(clock.throttled)}"] if clock and clock.throttled else []


def fingerprint() -> str:
    """Of this machine's GPU; empty without one."""
    gpu = gpu_here()
    return gpu.fingerprint if gpu else ""
