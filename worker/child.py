"""The process that compiles one model: `python -m worker.child SPEC FRAMES`, both descriptors.

It reads its orders (one frame) from SPEC, closes the walls around itself, compiles, and writes events and at the
end one report or one problem to FRAMES. The compiler is imported inside the walls: they hold only for threads
that start after them.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker import frames
from worker.limits import Limits

if TYPE_CHECKING:
    from compiler.contract import Event


@dataclass(frozen=True)
class Spec:
    """The orders of one job. Paths are absolute; `records` are earlier measurements of this hardware."""

    model: Path
    artifact: Path
    scratch: Path
    options: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "spec",
            "model": str(self.model),
            "artifact": str(self.artifact),
            "scratch": str(self.scratch),
            "options": dict(self.options),
            "records": [dict(record) for record in self.records],
            "limits": self.limits.to_json(),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Spec:
        return cls(
            model=Path(plain["model"]),
            artifact=Path(plain["artifact"]),
            scratch=Path(plain["scratch"]),
            options=plain["options"],
            records=tuple(plain["records"]),
            limits=Limits.from_json(plain["limits"]),
        )


def main(arguments: list[str]) -> None:
    """Do what the spec says; the exit status is 0 whenever a report or a problem was written."""
    spec_descriptor, frames_descriptor = map(int, arguments)
    faulthandler.enable()
    os.set_inheritable(frames_descriptor, False)
    spec = _read_spec(spec_descriptor)
    os.chdir(spec.scratch)
    from worker import sandbox

    standing = sandbox.enter(spec.limits, spec.scratch, readable=[spec.model], keep=[frames_descriptor])
    outbox = _Outbox(frames_descriptor)
    outbox.send({"kind": "sandbox", "standing": list(standing)})
    outbox.send(_compile(spec, outbox))
    # Leave at once: exit handlers of native libraries may crash after the work is done.
    sys.stderr.flush()
    os._exit(0)


def _compile(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    """The last frame: the report, or the problem."""
    from compiler.contract import CompileOptions
    from worker import problems

    try:
        from compiler.pipeline import compile_model

        options = CompileOptions.from_json(spec.options)
        report = compile_model(spec.model, spec.artifact, options, records=spec.records, observe=outbox.event)
        return {"kind": "report", "report": report.to_json()}
    except Exception as error:
        traceback.print_exc()
        return {"kind": "problem", "problem": problems.from_exception(error, spec.limits).to_json()}


class _Outbox:
    """Frames to the worker, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            frames.write(self._descriptor, message)

    def event(self, event: Event) -> None:
        self.send({"kind": "event", "event": event.to_json()})


def _read_spec(descriptor: int) -> Spec:
    with os.fdopen(descriptor, "rb") as file:
        whole = file.read()
    (plain,) = frames.Decoder(max_frame_bytes=len(whole)).feed(whole)
    return Spec.from_json(plain)


if __name__ == "__main__":
    main(sys.argv[1:])
