"""A runtime that generates, seen from the process that measures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engines.driver import EngineFailed
from bench.engines.process import Answering


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


class Running(Answering):
    """A contender that runs."""

    def __init__(self, contender: Contender, log: Path) -> None:
        super().__init__(contender.name, contender.words, contender.folder, log)

    def ask(self, **request: Any) -> Mapping[str, Any]:
        """The answer to a request."""
        answer: Mapping[str, Any] = self._answer(json.dumps(request))
        return answer

    def _over(self, said: Sequence[str]) -> EngineFailed:
        """In one line, as tables show it."""
        reason = " ".join(said) or "it said nothing"
        return EngineFailed(f"{self.name} cannot run the model: {reason}", fix="see the reason")
