"""Our own engine: an artifact, by its own loader."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import tilewright
from bench.engines.driver import Layer, Opened, Task

MOST_REPEATS = 200


def open_artifact(task: Task) -> Opened:
    """The artifact, with inputs and outputs in order."""
    model = tilewright.load(task.file, lanes=task.threads)
    given = [task.inputs[spec.name] for spec in model.inputs]
    return Opened(lambda: model.run_flat(given), tuple(spec.name for spec in model.outputs))


def calls(artifact: Path) -> list[dict[str, Any]]:
    """The kernel calls of an artifact as its plan lists them."""
    with zipfile.ZipFile(artifact) as archive:
        return list(json.loads(archive.read("plan.json"))["calls"])


def layers(task: Task, seconds: float) -> list[Layer]:
    """One layer for each kernel call, in the order of the plan, each run one lane at a time."""
    with tilewright.load(task.file, lanes=task.threads) as model:
        begin = time.perf_counter()
        model.run(task.inputs)
        once = time.perf_counter() - begin
        repeats = min(max(round(seconds / once), 1), MOST_REPEATS)
        measured = model.profile(task.inputs, repeats)
    return [
        Layer(call["family"], tuple(call["sources"]), row["seconds"])
        for call, row in zip(calls(task.file), measured, strict=True)
    ]
