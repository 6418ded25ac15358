"""Processes that judge cases, many each; one that dies or hangs costs its case alone, and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from bench.conformance.judge import CRASHED, Verdict, judge
from bench.conformance.suite import Case, suite
from bench.replay.objects import launcher
from compiler.codegen.build import environment_compiler, find_toolchain

SPAWN = multiprocessing.get_context("spawn")
"""A new interpreter: one that is forked would share the state of the process that prints."""


def judged(cases: Sequence[Case], jobs: int, limit_s: float, target: str = "cpu") -> Iterator[Verdict]:
    """A verdict for each case as it comes. A case may take `limit_s` wall seconds once its process has begun."""
    with tempfile.TemporaryDirectory(prefix="conformance-objects-") as objects:
        yield from _judged(cases, jobs, lambda case: _Worker(case, limit_s, target, Path(objects)))


def _judged(cases: Sequence[Case], jobs: int, start: Callable[[Case], _Worker]) -> Iterator[Verdict]:
    waiting = list(reversed(cases))
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(start(waiting.pop()))
            soonest = min(worker.end for worker in workers) - time.monotonic()
            ready = wait([worker.pipe for worker in workers], max(soonest, 0))
            for worker in list(workers):
                verdict = worker.verdict(worker.pipe in ready)
                if verdict is None:
                    continue
                yield verdict
                if waiting and not worker.over:
                    worker.give(waiting.pop())
                else:
                    worker.stop()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process and the case that it judges."""

    def __init__(self, case: Case, limit_s: float, target: str, objects: Path) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.limit_s = limit_s
        self.over = False
        self._process = SPAWN.Process(target=_serve, args=(theirs, target, objects), daemon=True)
        self._process.start()
        theirs.close()
        self.pipe.recv()  # it has read the suite
        self.give(case)

    def give(self, case: Case) -> None:
        """Has it judge a case."""
        self._case = case
        self.end = time.monotonic() + self.limit_s
        self.pipe.send(case.name)

    def verdict(self, ready: bool) -> Verdict | None:
        """What it answered, or what became of it; None while it may still answer."""
        if ready:
            try:
                answer: Verdict = self.pipe.recv()
                return answer
            except EOFError:
                self._process.join()
                return self._crashed(f"the process ended with exit status {self._process.exitcode}")
        if time.monotonic() < self.end:
            return None
        return self._crashed(f"it took longer than {self.limit_s:g} s")

    def _crashed(self, reason: str) -> Verdict:
        self.over = True
        taken = time.monotonic() - self.end + self.limit_s
        return Verdict(self._case.name, self._case.group, CRASHED, reason, round(taken, 3))

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, target: str, objects: Path) -> None:
    """Judges until there is nobody to answer. The unit that all programs have in common is compiled once."""
    compiler = find_toolchain(environment_compiler(os.environ)).path
    os.environ["CC"] = str(launcher(objects, compiler))
    cases = suite()
    pipe.send("ready")
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(judge(cases[name], target))
