"""How a job's child asks its worker for others that measure, or a helper's for more: a frame, answered by a file.

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
IDLE_S = 5.0
"""How long a helper's child waits for more: its start takes a second, a search picks what is next in less."""
ASK_EVERY_S = 0.1


class _Post:
    """Questions to the worker, and its answers.

    send     writes a frame to the worker
    answers  the folder of its answers
    """

    def __init__(self, send: Callable[[Mapping[str, Any]], None], answers: Path) -> None:
        self._send, self._answers = send, answers
        self._asked = 0

    def _tell(self, what: str, content: Mapping[str, Any]) -> None:
        self._asked += 1
        self._send({"kind": "share", "number": self._asked, "ask": what, **content})

    def _ask(self, what: str, content: Mapping[str, Any]) -> dict[str, Any]:
        self._tell(what, content)
        path = answer_path(self._answers, self._asked)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                said = json.loads(path.read_text())
                return said if isinstance(said, dict) else {}
            except FileNotFoundError:
                time.sleep(_LOOK_EVERY_S)
        return {}


class Mailbox(_Post):
    """The worker's other end, as the search for tiles sees it: `compiler.tuning.helpers.Helpers`."""

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> int:
        """As the protocol says. Kernels beyond what a message may hold are left out: the asker measures them."""
        others = self._ask("offer", {"terms": terms.to_json(), "tasks": _offerable(tasks)}).get("others")
        return others if isinstance(others, int) else 0

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


class More(_Post):
    """The worker's other end, as a helper's child sees it that is done with what it was given."""

    def next(self, seconds: float, measured: int, stop: Callable[[], bool]) -> Sequence[Mapping[str, Any]]:
        """The next tasks, after those before took so many seconds, in which so many tiles were measured.

        None once there is nothing for IDLE_S, the job they are of is over, or `stop` answers True.
        """
        end = time.monotonic() + IDLE_S
        while not stop():
            said = self._ask("more", {"seconds": seconds, "measured": measured})
            if (tasks := said.get("tasks")) or not said.get("wait") or time.monotonic() >= end:
                return tasks or ()
            seconds, measured = 0.0, 0
            time.sleep(ASK_EVERY_S)
        return ()


def _offerable(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The first ones that a message may hold, as JSON."""
    offered = [task.to_json() for task in tasks if len(task.text.encode()) <= MOST_TEXT_BYTES][:MOST_TASKS]
    sizes = accumulate(len(json.dumps(one)) for one in offered)
    return [one for one, size in zip(offered, sizes, strict=True) if size <= MOST_BYTES]


def answer_path(folder: Path, number: int) -> Path:
    """Where the answer to a question lies."""
    return folder / f"answer-{number}"
