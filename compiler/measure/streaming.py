"""Many inferences in flight through an artifact for several devices: how often one ends, and how busy devices are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np

FILLING = 8
"""Frames before the time is taken: by then every device has work."""
BLOCKS = 5


class Streaming(Protocol):
    """An opened artifact, as the loader gives it."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """As the artifact packs it."""
        ...

    def stream(self, inputs: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The outputs of each frame, in order, with as many in flight as may be."""
        ...

    def occupancy(self) -> tuple[int, Sequence[float]]:
        """How many frames have ended, and each part's seconds of processor time."""
        ...

    def delays(self) -> Sequence[float]:
        """Of each device the seconds for which others kept its thread from its core."""
        ...


@dataclass(frozen=True)
class Streamed:
    """A block of frames.

    frames  that ended; `seconds` by the clock for them
    work_s  of each part, in processor time: that of another program on the same core is not in it
    caller_s  the same of the thread that submits and takes results, with the copies of inputs
    delays_s  of each device how long others kept its thread from its core; empty: not known
    """

    frames: int
    seconds: float
    work_s: Sequence[float]
    caller_s: float = 0.0
    delays_s: Sequence[float] = ()

    @property
    def period_s(self) -> float:
        """From one end of a frame to the next."""
        return self.seconds / self.frames

    @property
    def busy(self) -> tuple[float, ...]:
        """Of each part the share of the time that it was at work."""
        return tuple(work / self.seconds for work in self.work_s)


def stream(model: Streaming, inputs: Mapping[str, np.ndarray], seconds: float) -> Streamed:
    """Streams the same inputs for so long, at least one frame. Raises RunError for an artifact for one device.

    States that the artifact carries go from frame to frame.
    """
    outputs = model.stream(repeat(without_states(model, inputs)))
    for _ in islice(outputs, FILLING):
        pass
    _, before = model.occupancy()
    kept = model.delays()
    begin = now = time.perf_counter()
    own = time.thread_time()
    frames = 0
    while not frames or now < begin + seconds:
        next(outputs)
        frames += 1
        now = time.perf_counter()
    own = time.thread_time() - own
    _, after = model.occupancy()
    delays_s = [last - first for first, last in zip(kept, model.delays(), strict=True)]
    return Streamed(
        frames, now - begin, [last - first for first, last in zip(before, after, strict=True)], own, delays_s
    )


def undisturbed_s(
    period_s: float, loads: Sequence[float], busiest_s: float, delays_s: Sequence[float], caller_s: float = 0.0
) -> float:
    """What a period by the clock would be if nobody else had taken the devices' cores meanwhile.

    Of a frame each device works for its load, in processor time, is kept from its core for a delay, and waits for the
    others for the rest, for their delays among it. The caller's thread delays them by no more than it works itself,
    which is no disturbance. The device that waits least is the one that all wait for. So without delays a frame takes
    what the `busiest` of them works, the caller's thread on its core included, and what is left of that wait. `loads`
    without work are of devices that have no part. Never more than the clock said, which is right where delays are not
    known; never less than the busiest device works, which is what remains where there is much to disturb.
    """
    lost_s = max(sum(delays_s) - caller_s, 0.0)
    waits = [period_s - load - lost_s for load in loads if load]
    return min(period_s, busiest_s + max(min(waits, default=period_s), 0.0))


def own_delay_s() -> float:
    """How long others have kept the calling thread from a core; 0 where the system does not say."""
    try:
        return 1e-9 * int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0


def without_states(model: Streaming, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs that no frame before makes."""
    states = {one["input"] for one in model.manifest["stream"].get("carried", ())} if is_divided(model) else set()
    return {name: array for name, array in inputs.items() if name not in states}


def is_divided(model: Streaming) -> bool:
    """Whether an artifact has parts for several devices."""
    return "stream" in model.manifest


def streams(
    models: Sequence[Streaming], inputs: Sequence[Mapping[str, np.ndarray]], seconds: float
) -> list[dict[str, Any] | None]:
    """What streaming says of each model, None of those for one device; blocks of all take turns, `seconds` for each.

    per_second, period_s  medians of the blocks' throughput; `predicted_period_s` by the compiler
    periods_s             of each block
    devices               name, target, and the share of the time that it was busy, by processor time
    parts                 device (a position in devices), kernels, seconds of a frame that it does, share of the frames
    bubble                the share of the devices' time in which they did nothing, of those that have a part
    """
    blocks: list[list[Streamed]] = [[] for _ in models]
    for _ in range(BLOCKS):
        for own, model, given in zip(blocks, models, inputs, strict=True):
            if is_divided(model):
                own.append(stream(model, given, seconds / BLOCKS))
    return [_report(model.manifest["stream"], own) if own else None for model, own in zip(models, blocks, strict=True)]


def _report(described: Mapping[str, Any], blocks: Sequence[Streamed]) -> dict[str, Any]:
    parts = described["parts"]
    whole = Streamed(
        sum(block.frames for block in blocks),
        sum(block.seconds for block in blocks),
        [sum(each) for each in zip(*(block.work_s for block in blocks), strict=True)],
    )
    busy = [0.0 for _ in described["devices"]]
    for part, own in zip(parts, whole.busy, strict=True):
        busy[part["device"]] += own
    used = sorted({part["device"] for part in parts})
    shares = [len(part["turns"]) / part["every"] for part in parts]
    period_s = median(block.period_s for block in blocks)
    return {
        "per_second": 1 / period_s,
        "period_s": period_s,
        "predicted_period_s": described["period_s"],
        "periods_s": [block.period_s for block in blocks],
        "devices": [
            {"name": one["name"], "target": one["target"], "busy": share}
            for one, share in zip(described["devices"], busy, strict=True)
        ],
        "parts": [
            {
                "device": part["device"],
                "kernels": len(part["calls"]),
                "seconds": own / (whole.frames * share),
                "share": share,
            }
            for part, own, share in zip(parts, whole.work_s, shares, strict=True)
        ],
        "bubble": max(0.0, 1 - sum(busy[at] for at in used) / len(used)),
    }
