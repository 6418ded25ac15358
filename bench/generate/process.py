"""A runtime that generates, seen from the process that measures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.engines.driver import EngineFailed

LINES_SHOWN = 5


@dataclass(frozen=True)
class Contender:
    """A program that answers as `bench.generate.child` says.

    words   that start it, in `folder`
    held    bytes of the files that it opens
    writes  whether it writes logits
    """

    name: str
    words: Sequence[str]
    folder: Path
    held: int
    writes: bool = True


class Running:
    """A contender that runs; use it in a `with` block. Raises `EngineFailed` where it ends or never begins."""

    def __init__(self, contender: Contender, log: Path) -> None:
        self.name = contender.name
        self._errors = log.open("w+")
        self._process = subprocess.Popen(
            list(contender.words),
            cwd=contender.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            process_group=0,
        )

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

    def ask(self, **request: Any) -> Mapping[str, Any]:
        """The answer to a request."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # its log says what ended it
            pass
        answer: Mapping[str, Any] = json.loads(self._line())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            tail = " ".join(self._errors.read().splitlines()[-LINES_SHOWN:])
            raise EngineFailed(f"{self.name} cannot run the model: {tail or 'it said nothing'}", fix="see the reason")
        return line
