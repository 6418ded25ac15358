"""One runtime in a process of its own: `python -m bench.generate.child ENGINE FILE THREADS CAPACITY`.

It prints a line when it is ready. Then each line on standard input is a request in JSON, and is answered by one:

    {"read": [1, 2, 3]}              forgets everything and reads a prompt
    {"go": 8}                        takes the text back to the prompt, and goes on with so many of the likeliest tokens
    {"go": 8, "logits": "file.npy"}  the same, and writes the logits that each token was taken by

Answers have `tokens`, seconds of each by the clock (`wall`) and of this process on all cores (`cpu`), for how many
seconds threads `waited` for a core, and `memory`: resident bytes. The first token comes with reading the prompt. The
program `llama.mjs` answers the same, but for logits.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.engines.child import waited_s
from bench.generate.sessions import OPENERS, Logits, Session


class Served:
    """A session, the prompt that it has read, and the logits after it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prompt = 0
        self._first: Logits = np.empty(0, np.float32)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """As the module says."""
        waited = waited_s()
        if "read" in request:
            self._session.rewind(0)
            self._prompt = len(request["read"])
            wall, cpu = time.perf_counter(), time.process_time()
            self._first = self._session.read(request["read"]).copy()
            tokens = [int(self._first.argmax())]
            times = [(time.perf_counter() - wall, time.process_time() - cpu)]
        else:
            tokens, times = self._go(int(request["go"]), request.get("logits"))
        walls, cpus = zip(*times, strict=True)
        took = {"wall": walls, "cpu": cpus, "waited": max(waited_s() - waited, 0.0)}
        return {"tokens": tokens, **took, "memory": resident_bytes()}

    def _go(self, count: int, file: str | None) -> tuple[list[int], list[tuple[float, float]]]:
        self._session.rewind(self._prompt)
        token = int(self._first.argmax())
        found, times, logits = [], [], [self._first]
        for _ in range(count):
            wall, cpu = time.perf_counter(), time.process_time()
            given = self._session.read([token])
            token = int(given.argmax())
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
            found.append(token)
            if file:
                logits.append(given.copy())
        if file:
            np.save(file, np.array(logits))
        return found, times


def resident_bytes() -> int:
    """Of this process, shared pages counted whole; 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS")), 0)


def main(arguments: list[str]) -> None:
    """Serve requests until standard input ends."""
    engine, file, threads, capacity = arguments
    served = Served(OPENERS[engine](Path(file), int(threads), int(capacity)))
    print(json.dumps({"memory": resident_bytes()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(served.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
