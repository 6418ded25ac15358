"""What a request says of a job beside what is to be done: what it is called, and how long it may wait and run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MOST_TAGS = 32
LONGEST_NAME, LONGEST_NOTE = 200, 4000
LONGEST_S = 1e9
COMPILER = r"^[0-9]{1,6}\.([0-9]{1,6}\.([0-9]{1,6}|\*)|\*)$"
"""A version such as `0.1.0`, or all that begin alike: `0.1.*`, `0.*`."""


def allows(compiler: str | None, version: str) -> bool:
    """Whether workers of this version of the compiler may take a job that asks for `compiler`."""
    if compiler is None:
        return True
    return version.startswith(compiler[:-1]) if compiler.endswith("*") else version == compiler


@dataclass(frozen=True)
class Beside:
    """What a request says of a job beside what is to be done; of it `compiler` alone has a part in the cache.

    max_queue_s  seconds after the request in which a worker must have begun it, else it fails; None: no limit
    max_run_s    what one attempt may take, where that is less than the operator allows; None: that
    compiler     version of the compiler whose workers may take it, as `COMPILER` has it; None: any
    """

    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()
    max_queue_s: float | None = None
    max_run_s: float | None = None
    compiler: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Of the job's row."""
        return {**asdict(self), "tags": list(self.tags) or None}

    @property
    def said(self) -> dict[str, Any]:
        """What is not left out, as plain JSON."""
        return {name: value for name, value in self.columns.items() if value is not None}

    def over(self, other: Beside) -> Beside:
        """This, and of `other` what this leaves out."""
        return Beside(**{name: mine or getattr(other, name) for name, mine in vars(self).items()})


NOTHING = Beside()
