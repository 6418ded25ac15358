"""The kinds of device, as far as options name them."""

from __future__ import annotations

import re
from collections.abc import Mapping

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("fp32", "bf16"),
    "cuda": ("fp32", "tf32", "fp16", "bf16"),
}
"""By kind of target."""
SCHEDULERS = ("auto", "sequential", "aligned", "early_start", "stages", "greedy")
CPU_SCHEDULERS = ("aligned", "greedy")
"""Those of SCHEDULERS that share kernels out over the lanes of a CPU; a launch of a GPU is whole."""
TARGET_PATTERN = re.compile(r"(cpu|cuda)(:[a-z0-9._-]{1,64})?")
