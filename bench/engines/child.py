"""One engine in a process of its own: `python -m bench.engines.child ENGINE FILE INPUTS OUTPUTS THREADS PRECISION`.

It runs FILE once on the arrays of INPUTS (.npz), writes what that gave to OUTPUTS (.npz) and prints `ready`. Then, for
each line on standard input, a number of seconds, it runs the model for so long and prints as JSON the seconds of each
run, and those for which its threads waited for a core. It ends with its input.

With OUTPUTS `-` it writes no outputs, and each line is answered with the engine's layers and their seconds.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from bench.engines.catalogue import driver
from bench.engines.driver import Driver, Task
from tilewright.arrays import read_npz, write_npz

LEAST = 3
"""Runs of one turn, however long they take."""
NO_OUTPUTS = "-"
TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Turn:
    """Seconds of single runs, and for how long threads of the engine wanted a core and had none.

    Both in seconds, of this turn.
    """

    seconds: tuple[float, ...]
    waited: float


def turn(run: Callable[[], object], seconds: float) -> Turn:
    """As many runs as `seconds` last and at least LEAST; the first, which wakes threads, is not among them."""
    run()
    samples: list[float] = []
    waited = waited_s()
    end = time.perf_counter() + seconds
    while len(samples) < LEAST or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return Turn(tuple(samples), max(waited_s() - waited, 0.0))


def waited_s() -> float:
    """For how long the threads of this process have waited for a core so far, in seconds.

    By the kernel's count; 0 where it does not count.
    """
    total = 0
    for file in TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            total += int(file.read_text().split()[1])
    return 1e-9 * total


def answers(engine: Driver, task: Task, outputs: str) -> Callable[[float], list[Any]]:
    """What a number of seconds is answered with."""
    if outputs == NO_OUTPUTS:
        layers = engine.layers
        assert layers is not None, f"{engine.name} tells no layers"
        return lambda seconds: [astuple(layer) for layer in layers(task, seconds)]
    opened = engine.open(task)
    write_npz(Path(outputs), dict(zip(opened.outputs, opened.run(), strict=True)))
    return lambda seconds: list(astuple(turn(opened.run, seconds)))


def main(arguments: list[str]) -> None:
    """Serve turns until standard input ends."""
    name, file, inputs, outputs, threads, precision = arguments
    task = Task(Path(file), read_npz(Path(inputs)), int(threads), precision)
    answer = answers(driver(name), task, outputs)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(float(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
