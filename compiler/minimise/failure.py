"""What a compilation ended with, as a signature that another one can be compared by."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from compiler.errors import Disagreement, TilewrightError

CRASHED, TIMED_OUT = "crashed", "timed_out"
"""Codes of what no error is raised for: a process that a signal ended, and one that took too long."""


@dataclass(frozen=True)
class Signature:
    """One way to fail. Equal ones are the same fault as far as anything outside can say.

    code      of the error; `crashed` for a process that a signal ended
    phase     in which it came
    operator  of the node that is refused; empty for other faults
    reason    why, with names and numbers left out, which depend on the rest of the model; of a crash the signal, of an
              exception that is no error of ours its type and place; empty for a disagreement, whose words are figures
    """

    code: str
    phase: str
    operator: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Failure:
    """How a compilation failed: every signature (one for each refusal), and the error as JSON."""

    signatures: tuple[Signature, ...]
    problem: Mapping[str, Any]

    @classmethod
    def of(cls, error: BaseException, phase: str) -> Failure:
        """The failure that an exception is."""
        if not isinstance(error, TilewrightError):
            place = traceback.extract_tb(error.__traceback__)[-1:]
            where = f"{type(error).__name__} in {place[0].name}" if place else type(error).__name__
            said = f"{type(error).__name__}: {error!s:.500}"
            return cls((Signature("internal", phase, reason=where),), problem("internal", said, phase))
        plain = {**error.to_json(), "phase": phase}
        if error.refusals:
            each = [Signature(error.code, phase, one.operator, template(one.reason)) for one in error.refusals]
            return cls(tuple(dict.fromkeys(each)), plain)
        reason = "" if isinstance(error, Disagreement) else template(error.message)
        return cls((Signature(error.code, phase, reason=reason),), plain)

    @classmethod
    def crash(cls, signal: str, phase: str) -> Failure:
        """The failure of a process that a signal ended."""
        said = f"the compiler was ended by {signal}"
        return cls((Signature(CRASHED, phase, reason=signal),), problem(CRASHED, said, phase))

    def to_json(self) -> dict[str, Any]:
        """Its signatures and the problem, ready for `json.dumps`."""
        return {"signatures": [asdict(one) for one in self.signatures], "problem": dict(self.problem)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Failure:
        """The failure of which `plain` is the `to_json`."""
        return cls(tuple(Signature(**one) for one in plain["signatures"]), plain["problem"])


def problem(code: str, message: str, phase: str) -> dict[str, Any]:
    """As `TilewrightError.to_json`, for what is none, with the phase."""
    return {
        "code": code,
        "fault": "ours",
        "message": message,
        "fix": "report this model: it is our fault",
        "refusals": [],
        "details": {},
        "phase": phase,
    }


def template(text: str) -> str:
    """A sentence without the names, numbers and shapes in it."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "NAME", text)
    text = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "N", text)
    return re.sub(r"N([ x,]+N)+", "N", text)
