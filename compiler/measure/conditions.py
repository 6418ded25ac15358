"""State of the machine while something is measured: who else used it, and how fast it was allowed to be."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

NOTABLE_OTHERS = 0.05
"""Of all cores' time, used by other processes: more than this is worth a word."""
NOTABLE_STEAL = 0.01
"""Of one core's time, given by the hypervisor to another machine."""


@dataclass(frozen=True)
class Ticks:
    """One core's counters of /proc/stat, in clock ticks."""

    busy: int
    steal: int
    idle: int


@dataclass(frozen=True)
class Conditions:
    """What a Linux machine says of itself at one moment; None or empty where it does not say.

    load_average      of 1, 5 and 15 minutes
    available_bytes   memory that could be had without swapping
    frequency_hz      by core number
    governor          by core number
    core_ticks        by core number
    own_cpu_s         CPU seconds of this process, all threads
    cgroup_held_s     seconds for which the container's CPU limit held its processes back
    heat_events       how often a core was slowed because it was too hot
    """

    at: float
    load_average: tuple[float, ...]
    available_bytes: int | None
    frequency_hz: Mapping[int, float]
    governor: Mapping[int, str]
    core_ticks: Mapping[int, Ticks]
    own_cpu_s: float
    cgroup_held_s: float | None
    heat_events: int | None

    def to_json(self) -> dict[str, Any]:
        """What can be read at one moment; counters mean something over a time only (`between`)."""
        return {
            "load_average": list(self.load_average),
            "available_bytes": self.available_bytes,
            "frequency_hz": [self.frequency_hz[core] for core in sorted(self.frequency_hz)] or None,
            "governor": [self.governor[core] for core in sorted(self.governor)] or None,
        }


def conditions(root: Path = Path("/")) -> Conditions:
    """The machine's state now. `root` is where proc and sys lie."""
    cpus = root / "sys/devices/system/cpu"
    return Conditions(
        at=time.monotonic(),
        load_average=tuple(float(part) for part in _text(root / "proc/loadavg").split()[:3]),
        available_bytes=_available(_text(root / "proc/meminfo")),
        frequency_hz=_frequencies(cpus, _text(root / "proc/cpuinfo")),
        governor={
            core: text.strip() for core, path in _cores(cpus, "cpufreq/scaling_governor") if (text := _text(path))
        },
        core_ticks=_ticks(_text(root / "proc/stat")),
        own_cpu_s=time.process_time(),
        cgroup_held_s=_held(root),
        heat_events=_heat(cpus),
    )


def between(before: Conditions, after: Conditions) -> dict[str, Any]:
    """What happened from one moment to another, as shares of that time (0 to 1) where not in seconds.

    `others_busy` is what all other processes used of all cores, in ticks of the kernel's clock (10 ms): over less than
    a second it is rough.
    """
    seconds = after.at - before.at
    cores, busy = [], 0
    for core in sorted(set(before.core_ticks) & set(after.core_ticks)):
        was, now = before.core_ticks[core], after.core_ticks[core]
        # What waits for devices is idle time that may be taken back (proc_stat(5)).
        used, stolen, idle = (max(0, late - early) for late, early in zip(astuple(now), astuple(was), strict=True))
        total = max(used + stolen + idle, 1)
        busy += used
        cores.append({"core": core, "busy": round(used / total, 4), "steal": round(stolen / total, 4)})
    own = after.own_cpu_s - before.own_cpu_s
    others = None
    if cores and seconds > 0:
        others = round(max(0.0, busy / os.sysconf("SC_CLK_TCK") - own) / (seconds * len(cores)), 4)
    return {
        "seconds": seconds,
        "own_cpu_s": own,
        "others_busy": others,
        "cores": cores,
        "cgroup_held_s": _grown(before.cgroup_held_s, after.cgroup_held_s),
        "heat_events": _grown(before.heat_events, after.heat_events),
    }


def disturbances(during: Mapping[str, Any]) -> list[str]:
    """Sentences on what may have spoilt a measurement, from what `between` gave."""
    said = []
    if (during["others_busy"] or 0.0) > NOTABLE_OTHERS:
        said.append(f"other processes used {during['others_busy']:.0%} of this machine's cores meanwhile")
    stolen = max((core["steal"] for core in during["cores"]), default=0.0)
    if stolen > NOTABLE_STEAL:
        said.append(f"the hypervisor took up to {stolen:.0%} of a core's time for other machines meanwhile")
    if during["cgroup_held_s"]:
        said.append(f"the container's CPU limit held it back for {during['cgroup_held_s']:.2g} s")
    if during["heat_events"]:
        said.append(f"cores were slowed {during['heat_events']} times because they were too hot")
    return said


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _cores(cpus: Path, name: str) -> list[tuple[int, Path]]:
    """By core number, a file that each core may have."""
    return sorted(
        (int(folder.name[3:]), folder / name) for folder in cpus.glob("cpu[0-9]*") if folder.name[3:].isdigit()
    )


def _available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _frequencies(cpus: Path, cpuinfo: str) -> dict[int, float]:
    """As cpufreq reports them; without it, as the processor does. In Hz."""
    reported = {
        core: float(text) * 1e3 for core, path in _cores(cpus, "cpufreq/scaling_cur_freq") if (text := _text(path))
    }
    if reported:
        return reported
    lines = [line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("cpu MHz")]
    return {core: float(megahertz) * 1e6 for core, megahertz in enumerate(lines)}


def _ticks(stat: str) -> dict[int, Ticks]:
    """user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice already."""
    found = {}
    for line in stat.splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(counts) >= 8:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, counts[:8])
            found[int(name[3:])] = Ticks(user + nice + system + irq + softirq, steal, idle + iowait)
    return found


def _held(root: Path) -> float | None:
    """From the control group of this process (version 2), or from the one that a container shows as its root."""
    own = [line[3:].strip() for line in _text(root / "proc/self/cgroup").splitlines() if line.startswith("0::")]
    for group in (*own, "/"):
        for line in _text(root / "sys/fs/cgroup" / group.lstrip("/") / "cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "throttled_usec":
                return int(value) * 1e-6
    return None


def _heat(cpus: Path) -> int | None:
    counts = [int(text) for _, path in _cores(cpus, "thermal_throttle/core_throttle_count") if (text := _text(path))]
    return sum(counts) if counts else None
