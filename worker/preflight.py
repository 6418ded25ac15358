"""The process that looks at one model before it is compiled: `python -m worker.preflight`.

It is started ahead of need: everything is imported, then it waits for one line of JSON on its standard input, closes
the walls around itself, does the order, writes one line of JSON to its standard output and ends. The orders are

    {"order": "preflight", "model": path, "data": {...}, "options": {...}}     answered as `compiler.preflight` does
    {"order": "graph", "model": path}                 answered by {"graph": as `compiler.frontend.outline` has it}
    {"order": "source", "text": ..., "variant": {...}, "target": ...}          answered by {"source": C}
    {"order": "walls"}                                answered by {"missing": walls, "fix": what it takes to have them}

where `data` is all external data, path in the model to path, none by default;
and what cannot be done is answered by {"problem": `TilewrightError.to_json`}. Each may have `limits`, see `Held`, and
`walls`, those of the sandbox without which nothing is read. Files are the asker's copies: `service.blobs.copies`.
When the input closes without an order, because whoever started it is gone, it ends with status 0.

The walls hold for one thread and those that it starts, so there must be no other one when they close. Numerical
libraries start some when they are imported unless the environment says otherwise (`OPENBLAS_NUM_THREADS=1`, as
`service.jobs.inspection.inspector` sets it); that there are none is checked.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions
from compiler.errors import InternalError
from compiler.frontend import outline
from compiler.preflight import preflight
from compiler.source import source_of
from worker import problems
from worker.limits import BEHIND_OTHERS, LAST_WORDS_S, Limits, lower
from worker.sandbox import enter, restrictions

MAX_ORDER_BYTES = MAX_ANSWER_BYTES = 32 << 20
TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Held:
    """What the kernel holds this process to.

    `cpu_s` seconds of CPU, and `memory_bytes` beyond what it has once it is warm.
    """

    cpu_s: float = 20.0
    memory_bytes: int = 2 << 30


def main() -> None:
    """One order, one answer."""
    os.nice(BEHIND_OTHERS)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    line = sys.stdin.buffer.readline(MAX_ORDER_BYTES)
    if not line:
        return
    try:
        order = json.loads(line)
        held = Held(**order.get("limits", {}))
    except (ValueError, TypeError, AttributeError, RecursionError):
        _answer(answers, {"problem": InternalError("an order is one line of JSON", fix="report this").to_json()})
        return
    try:
        files = [order["model"], *order.get("data", {}).values()] if "model" in order else []
        standing = _enter(held, [Path(file) for file in files], answers)
        missing = [wall for wall in order.get("walls", []) if wall not in standing]
        answer = _about_walls(missing) if order.get("order") == "walls" else _do(order, missing)
    except Exception as error:
        answer = {"problem": problems.from_exception(error, Limits(memory_bytes=held.memory_bytes)).to_json()}
    _answer(answers, answer)


def _enter(held: Held, readable: list[Path], answers: int) -> tuple[str, ...]:
    """Close the walls; beside the system's files only `readable` can be read. Those that stand.

    Raises InternalError if another thread runs.
    """
    if TASKS.exists() and (tasks := len(os.listdir(TASKS))) != 1:
        raise InternalError(
            f"{tasks} threads run where one must: the walls would not hold", fix="start it with OPENBLAS_NUM_THREADS=1"
        )
    limits = Limits(wall_s=held.cpu_s, memory_bytes=held.memory_bytes, file_bytes=MAX_ANSWER_BYTES, processes=1)
    standing = enter.enter(limits, None, readable=readable, keep=[answers])
    cpu_s = max(1, round(held.cpu_s))
    lower(resource.RLIMIT_CPU, cpu_s, hard=cpu_s + LAST_WORDS_S)
    # Private memory only: weights beside the model are mapped, and a mapped file takes none.
    lower(resource.RLIMIT_DATA, _private_bytes() + held.memory_bytes)
    return standing


def _about_walls(missing: list[str]) -> dict[str, Any]:
    return {"missing": missing, "fix": restrictions.fix_of(missing) if missing else ""}


def _do(order: Mapping[str, Any], missing: list[str]) -> dict[str, Any]:
    if missing:
        raise problems.walls_missing(missing)
    match order.get("order"):
        case "preflight":
            data = {name: Path(path) for name, path in order.get("data", {}).items()}
            return preflight(Path(order["model"]), CompileOptions.from_json(order["options"]), data)
        case "graph":
            return {"graph": outline(Path(order["model"]))}
        case "source":
            return {"source": source_of(order["text"], order["variant"], order["target"])}
        case unknown:
            raise InternalError(f"order {unknown!r:.40} is unknown", fix="report this")


def _answer(descriptor: int, answer: Mapping[str, Any]) -> None:
    text = json.dumps(answer, separators=(",", ":"), allow_nan=False)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode() + b"\n")


def _private_bytes() -> int:
    """What the kernel counts towards RLIMIT_DATA: pages of data and stack, as /proc states them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 2 << 30


if __name__ == "__main__":
    main()
    # Leave at once: exit handlers of native libraries may crash after the work is done.
    sys.stderr.flush()
    os._exit(0)
