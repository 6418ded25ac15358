"""What an owner is told of a fault of ours: a plain sentence and the id to report it with.

Tracebacks name files of the machine that the work ran on. They go to the log of whoever notes the fault.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from compiler.errors import InternalError
from service.logs import logger

CUT = "  (the operator finds the stack in the worker's log)\n"

_STACK = re.compile(r"\s*(Traceback|Stack) \(most recent call|\s*(Current thread|Thread) 0x[0-9a-f]+ ")
_LEVEL = re.compile(r'\s+File "[^"]*", line \d+')

log = logger(__name__)


def for_owner(problem: Mapping[str, Any], job_id: uuid.UUID) -> dict[str, Any]:
    """The problem of a job (`TilewrightError.to_json`) as its row and answers have it; the rest is logged."""
    if problem.get("fault") != "ours":
        return dict(problem)
    log.error("a job failed by a fault of ours", job=str(job_id), problem=dict(problem))
    details = dict(problem.get("details") or {})
    traceback = details.pop("traceback", None)
    shown = {**problem, "details": details}
    if isinstance(details.get("log_tail"), str):
        details["log_tail"] = without_stacks(details["log_tail"])
    if traceback is not None and problem.get("code") == InternalError.code:
        shown["message"] = f"the job's process failed with {details.get('exception', 'an error')}; this is our fault"
        shown["fix"] = f"report it with the id of the job, {job_id}"
    return shown


def without_stacks(text: str) -> str:
    """The lines of a process's output without those of stacks of calls, each replaced by one that says so.

    The line that names the exception goes with its stack: it may name a file too, and the job's problem says what the
    owner needs of it.
    """
    return "".join(_kept(text.splitlines(keepends=True)))


def begins_stack(line: str) -> bool:
    """Whether a line of a process's output is the first of a stack of calls, or one of its levels."""
    return bool(_STACK.match(line) or _LEVEL.match(line))


def _kept(lines: list[str]) -> Iterator[str]:
    inside = names_error = False
    for line in lines:
        if begins_stack(line):
            if not inside:
                yield CUT
            names_error = names_error or "Traceback" in line
            inside = True
        elif not (inside and line[:1] in (" ", "\t")):
            if not (inside and names_error and line.strip()):
                yield line
            inside = names_error = False
