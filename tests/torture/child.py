"""Stands where a job's child does, at the lowest seam.

Says what a compilation says, and writes a model's name as its artifact.

A real one takes seconds and would let twenty die in the time in which two hundred should. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

STEPS = 6
"""Records that a whole attempt leaves; `variant` names attempt (by its fence) and step."""


def main(orders: int, frames: int) -> None:
    """Read the orders, tell of progress for a while, leave an artifact and a report."""
    spec = json.loads(os.fdopen(orders, "rb").read()[4:])
    ((_, model),) = spec["inputs"]
    digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    fence = int(Path(spec["scratch"]).parent.name.rpartition("-")[2])
    for step in range(STEPS):
        event = {"kind": "progress", "phase": "tile", "fraction": step / STEPS, "message": "", "data": {}}
        send(frames, {"kind": "event", "event": event})
        measured = record(digest, {"fence": fence, "step": step})
        send(frames, {"kind": "event", "event": {**event, "kind": "record", "data": measured}})
        time.sleep(random.uniform(0.0, 0.12))
    Path(spec["output"]).write_text(digest)
    send(frames, {"kind": "report", "report": {"kernels": 1, "phase_seconds": {"tile": 0.1}}})


def record(workload: str, variant: dict[str, int]) -> dict[str, Any]:
    return {
        "kind": "kernel",
        "workload": workload,
        "operator": "Conv",
        "description": "",
        "target": "cpu",
        "hardware": "torture",
        "variant": variant,
        "threads": 1,
        "seconds": 1e-3,
        "p10": 1e-3,
        "p90": 1e-3,
        "samples": 1,
        "compiler": "0",
    }


def send(frames: int, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    os.write(frames, struct.pack(">I", len(body)) + body)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
