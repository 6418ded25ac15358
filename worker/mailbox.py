"""How a job's child asks its worker for others that measure: a frame each way, the way back through a file.

The files lie where the child may read and not write, and are numbered, so that none is an answer to another question.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.tuning.helpers import Given, Task, Terms

MOST_TASKS = 2_000
MOST_TEXT_BYTES = 64 << 10
"""Of one kernel that is offered..."""
MOST_BYTES = 4 << 20
"""... and of all together, as JSON: a message of more than 8 MiB would end the job."""
PATIENCE_S = 20.0
"""A worker answers in some milliseconds; one whose database is away answers that there is nobody."""
_LOOK_EVERY_S = 0.005


class Mailbox:
    """The worker's other end, as the search for tiles sees it: `compiler.tuning.helpers.Helpers`.

    send     writes a frame to the worker
    answers  the folder of its answers
    """

    def __init__(self, send: Callable[[Mapping[str, Any]], None], answers: Path) -> None:
        self._send, self._answers = send, answers
        self._asked = 0

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> bool:
        """As the protocol says. Kernels beyond what a message may hold are left out: the asker measures them."""
        told = {"terms": terms.to_json(), "tasks": _offerable(tasks)}
        return self._ask("offer", told).get("offered") is True

    def take(self, seconds: float, measured: int) -> Given:
        """As the protocol says; nothing, and nobody is left, where no answer comes."""
        from compiler.tuning.helpers import Given

        said = self._ask("take", {"seconds": seconds, "measured": measured})
        if not said:
            return Given()
        return Given(tuple(said["keys"]), tuple(said["records"]), said["pending"], said["seconds"], said["by"])

    def over(self) -> None:
        """As the protocol says; the answer is not waited for."""
        self._tell("over", {})

    def _tell(self, what: str, told: Mapping[str, Any]) -> None:
        self._asked += 1
        self._send({"kind": "share", "number": self._asked, "ask": what, **told})

    def _ask(self, what: str, told: Mapping[str, Any]) -> dict[str, Any]:
        self._tell(what, told)
        path = answer_path(self._answers, self._asked)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                said = json.loads(path.read_text())
                return said if isinstance(said, dict) else {}
            except FileNotFoundError:
                time.sleep(_LOOK_EVERY_S)
        return {}


def _offerable(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The first ones that a message may hold, as JSON."""
    offered = [task.to_json() for task in tasks if len(task.text.encode()) <= MOST_TEXT_BYTES][:MOST_TASKS]
    sizes = accumulate(len(json.dumps(one)) for one in offered)
    return [one for one, size in zip(offered, sizes, strict=True) if size <= MOST_BYTES]


def answer_path(folder: Path, number: int) -> Path:
    """Where the answer to a question lies."""
    return folder / f"answer-{number}"
