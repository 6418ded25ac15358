"""`python -m compiler.devices.cuda.measure.facts INDEX`: what driver and NVML say of a GPU.

For a process that must not start CUDA itself. Prints one line of JSON:
`{"gpu": fields of Gpu, "nvml": fields of nvml.Facts or null}`, or `{"refusal": why there is no such GPU}`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from compiler.devices.cuda.measure.driver import bus_id, gpu_here, refusal
from compiler.devices.cuda.measure.nvml import sensors


def facts(index: int) -> dict[str, Any]:
    """As the module says."""
    gpu = gpu_here(index)
    if gpu is None:
        return {"refusal": refusal(index)}
    with sensors(bus_id(index) or index) as found:
        return {"gpu": asdict(gpu), "nvml": found.facts().to_json() if found else None}


if __name__ == "__main__":
    print(json.dumps(facts(int(sys.argv[1]))))
