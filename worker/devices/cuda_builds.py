"""For which GPUs NVRTC makes code here, by a process of its own: NVRTC starts the driver, which a worker must not.

`python -m worker.devices.cuda_builds` prints `{"able": names of profiles}` or `{"missing": why there is no NVRTC,
"fix": ...}` as JSON.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda import target as cuda
from compiler.errors import ToolchainFailed, ToolchainMissing
from service.logs import logger
from worker import inquiry

PROBE = '#include "tw_cuda.h"\nextern "C" __global__ void tw_probe(float *x) { *x = 0; }\n'

log = logger(__name__)


def able() -> list[str]:
    """The CUDA profiles that NVRTC compiles a kernel for: each is tried. Empty, and logged, when there is no NVRTC."""
    answer = _told()
    if "missing" in answer:
        log.warning("this worker cannot build for GPUs", reason=answer["missing"], fix=answer["fix"])
        return []
    return list(answer["able"])


def _told() -> dict[str, Any]:
    try:
        answer: dict[str, Any] = inquiry.answer("worker.devices.cuda_builds", environment={"CUDA_VISIBLE_DEVICES": ""})
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"missing": f"NVRTC does not work: {error}", "fix": "pip install 'tilewright[cuda]'"}
    return answer


def probe() -> dict[str, Any]:
    """What the module prints."""
    found = []
    for profile in cuda.PROFILES:
        try:
            nvrtc.compile_cuda(PROBE, profile.architecture)
        except ToolchainMissing as error:
            return {"missing": error.message, "fix": error.fix}
        except ToolchainFailed:
            continue
        found.append(profile.name)
    return {"able": found}


if __name__ == "__main__":
    print(json.dumps(probe()))
