"""A running engine, seen from the process that measures."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.engines.child import NO_OUTPUTS, Turn
from bench.engines.driver import EngineFailed, Layer

ROOT = Path(__file__).parents[2]
"""The checkout: `bench` is not installed with the rest."""
LINES_SHOWN = 5


class Answering:
    """A program that answers requests line by line, the first line when it is ready; use it in a `with` block.

    Raises `EngineFailed` where it ends or never begins.

    words   that start it, in `folder`
    log     where its standard error goes
    """

    def __init__(self, name: str, words: Sequence[str], folder: Path, log: Path) -> None:
        self.name = name
        with contextlib.ExitStack() as kept:
            self._errors = kept.enter_context(log.open("w+"))
            self._process = subprocess.Popen(
                list(words),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                process_group=0,
            )
            kept.pop_all()  # `close` closes it: here it is closed where nothing was started

    def __enter__(self) -> Self:
        try:
            self._line()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self, request: object) -> Any:
        """What it says, in JSON, to a line."""
        with contextlib.suppress(BrokenPipeError):  # its log says what ended it
            self._pipe(self._process.stdin).write(f"{request}\n")
            self._pipe(self._process.stdin).flush()
        return json.loads(self._line())

    def _line(self) -> str:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise self._over(self._errors.read().splitlines()[-LINES_SHOWN:])
        return line

    def _over(self, said: Sequence[str]) -> EngineFailed:
        """That it has ended, with the last lines that it said."""
        return EngineFailed(f"{self.name} cannot run the model:\n" + "\n".join(said), fix="see the reason above")

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


class Engine(Answering):
    """A running `bench.engines.child`.

    inputs   an .npz with the arrays by name
    outputs  where it writes what the first run gave; None: it is asked for layers, not for turns
    label    what it is called where several of one engine run; None: as the engine
    """

    def __init__(
        self,
        name: str,
        file: Path,
        inputs: Path,
        outputs: Path | None,
        log: Path,
        threads: int,
        precision: str,
        *,
        label: str | None = None,
    ) -> None:
        given = [file.resolve(), inputs.resolve(), outputs.resolve() if outputs else NO_OUTPUTS]
        words = [sys.executable, "-m", "bench.engines.child", name, *map(str, given), str(threads), precision]
        super().__init__(label or name, words, ROOT, log)

    def turn(self, seconds: float) -> Turn:
        """Runs for so many seconds."""
        samples, waited = self._answer(seconds)
        return Turn(tuple(samples), waited)

    def layers(self, seconds: float) -> list[Layer]:
        """Each layer with its median seconds over so many seconds of runs."""
        return [Layer(kind, tuple(names), taken) for kind, names, taken in self._answer(seconds)]
