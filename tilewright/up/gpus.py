"""The NVIDIA GPUs of this machine, counted without a driver library: a worker is started for each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

KIND = "cuda:"
DRIVER = Path("/proc/driver/nvidia/gpus")
"""A folder for each GPU that the kernel's driver serves."""


def queues(driver: Path = DRIVER, environment: Mapping[str, str] | None = None) -> list[str]:
    """`cuda:0`, `cuda:1`, ...: one for each GPU, or for each that CUDA_VISIBLE_DEVICES leaves.

    None without the kernel's driver.
    """
    variables = os.environ if environment is None else environment
    try:
        there = len(list(driver.iterdir()))
    except OSError:
        return []
    seen = variables.get("CUDA_VISIBLE_DEVICES")
    count = there if seen is None else min(there, sum(bool(name.strip()) for name in seen.split(",")))
    return [f"{KIND}{index}" for index in range(count)]


def is_of(queue: str) -> bool:
    """Whether a queue is a GPU's."""
    return queue.startswith(KIND)
