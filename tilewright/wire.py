"""What the server says, as Python objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import JobFailed

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True)
class Job:
    """One compilation, as it was when the server said this."""

    id: str
    state: str
    artifact_id: str
    phase: str | None
    fraction: float
    problem: Mapping[str, Any] | None
    said: Mapping[str, Any] = field(repr=False)
    """All that the server said."""

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Job:
        """Raises KeyError when the answer is no job."""
        return cls(
            id=said["id"],
            state=said["state"],
            artifact_id=said["artifact_id"],
            phase=said.get("phase"),
            fraction=said.get("fraction") or 0.0,
            problem=said.get("problem"),
            said=said,
        )

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in TERMINAL

    def require_success(self) -> Job:
        """This job. Raises `JobFailed` with the server's reason when it failed or was cancelled."""
        if self.state in ("FAILED", "CANCELLED"):
            problem = self.problem or {}
            message = problem.get("message") or f"job {self.id} was cancelled"
            raise JobFailed(message, fix=problem.get("fix", ""), problem=problem)
        return self


@dataclass(frozen=True)
class JobEvent:
    """One line of a job's log. `seq` runs 1, 2, 3, ... without gaps.

    kind   `state`, `phase`, `progress`, `notice`
    data   `state`; or `phase`, `fraction` (0 to 1), `message`
    """

    seq: int
    kind: str
    data: Mapping[str, Any]

    @property
    def ends_job(self) -> bool:
        """Whether it is the last."""
        return self.kind == "state" and self.data.get("state") in TERMINAL


def parse_events(lines: Iterable[str]) -> Iterator[JobEvent]:
    """Server-sent events (HTML Living Standard, 9.2) from a stream of lines; an event cut short is dropped."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield JobEvent(int(fields.get("id", 0)), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
