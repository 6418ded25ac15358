"""Every way a compilation can fail, drawn as one tree.

    TilewrightError
    ├── CallerError            the request or the model is at fault
    │   ├── OptionsError           an option is unknown, ill-typed or out of range
    │   ├── SourceUnavailable      a tuning record that no source can be generated from
    │   ├── InputsError            arrays to be run do not fit the model, or are no arrays
    │   ├── BudgetMissed           no layer can be quantised so that the outputs are as near as was asked for
    │   ├── Unverified             no inputs show whether the artifact computes what the model says
    │   ├── ArtifactUnusable       the artifact to be run is damaged, or of another format version
    │   ├── ModelError             the bytes are not a model that can be compiled
    │   │   ├── MalformedModel         truncated, cyclic, ill-typed, not ONNX
    │   │   ├── ModelTooLarge          a stated limit (bytes, nodes, elements) is exceeded
    │   │   ├── UnboundDimension       a symbolic dimension has no value
    │   │   └── UnsupportedModel       one Refusal for each node that cannot be compiled
    ├── MachineError           this machine lacks or ran out of something
    │   ├── ToolchainMissing       no usable C compiler
    │   ├── ToolchainFailed        the C compiler rejected or died on generated code
    │   ├── TargetUnavailable      the requested target cannot be built or measured here
    │   ├── PlaceUnusable          no folder for temporary files that can be written and permits execution
    │   ├── DiskFull               no space, or no quota
    │   └── ResourceExhausted      memory, processes, files or time ran out
    └── InternalError          our fault
        ├── VerifyError            a step handed over a program that breaks its invariants
        │   └── OpenDimension      a number was asked for where a dimension is only known while running
        └── Disagreement           the artifact does not compute what the model says

Each class has a stable `code` and says whose `fault` it is; what an HTTP client sees of it is decided
in `service.http.responses.errors`, what is retried in `worker.attempt.tasks`. A leaf may carry `refusals`: all the
reasons at once, each naming the node, its operator and the fix.
"""

from __future__ import annotations

import errno
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

Fault = Literal["caller", "ours", "machine"]


@dataclass(frozen=True)
class Refusal:
    """One reason why one node (or option, or input) was refused, and what would mend it."""

    reason: str
    fix: str = ""
    node: str = ""
    operator: str = ""

    def __str__(self) -> str:
        where = f"{self.operator} {self.node!r}: " if self.operator else ""
        return f"{where}{self.reason}" + (f" Fix: {self.fix}" if self.fix else "")


@dataclass
class TilewrightError(Exception):
    """Root of the tree. `message` is one sentence; `fix` says what to do; `details` is JSON-able."""

    message: str
    fix: str = ""
    refusals: tuple[Refusal, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    code: ClassVar[str] = "internal"
    fault: ClassVar[Fault] = "ours"

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {refusal}" for refusal in self.refusals)]
        if self.fix:
            lines.append(f"Fix: {self.fix}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """What a job's row and an answer hold: code, fault, message, fix, refusals and details."""
        return {
            "code": self.code,
            "fault": self.fault,
            "message": self.message,
            "fix": self.fix,
            "refusals": [asdict(refusal) for refusal in self.refusals],
            "details": self.details,
        }


class CallerError(TilewrightError):
    code = "caller_error"
    fault = "caller"


class OptionsError(CallerError):
    code = "invalid_options"


class InputsError(CallerError):
    code = "invalid_inputs"


class BudgetMissed(CallerError):
    code = "budget_missed"


class ArtifactUnusable(CallerError):
    code = "artifact_unusable"


class SourceUnavailable(CallerError):
    code = "source_unavailable"


class ModelError(CallerError):
    code = "invalid_model"


class MalformedModel(ModelError):
    code = "malformed_model"


class ModelTooLarge(ModelError):
    code = "model_too_large"


class UnboundDimension(ModelError):
    code = "unbound_dimension"


class UnsupportedModel(ModelError):
    code = "unsupported_model"


class MachineError(TilewrightError):
    code = "machine_error"
    fault = "machine"


class ToolchainMissing(MachineError):
    code = "toolchain_missing"


class ToolchainFailed(MachineError):
    code = "toolchain_failed"


class TargetUnavailable(MachineError):
    code = "target_unavailable"


class PlaceUnusable(MachineError):
    code = "place_unusable"


class ResourceExhausted(MachineError):
    code = "resource_exhausted"


class DiskFull(MachineError):
    code = "disk_full"


class InternalError(TilewrightError):
    code = "internal"


class VerifyError(InternalError):
    code = "verify_failed"


class OpenDimension(VerifyError):
    """A number was asked for where a dimension is only known while running."""


class Unverified(CallerError):
    """No inputs show whether the artifact computes what the model says."""

    code = "unverified"


class Disagreement(InternalError):
    code = "disagreement"


def machine_error(what: str, reason: OSError) -> MachineError:
    """The leaf for a system call that failed, as the end of the sentence that `what` begins."""
    message = f"{what}: {reason.strerror or reason}"
    match reason.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(message, fix="free some disk space, or let TMPDIR name a folder on another disk")
        case errno.EFBIG:
            return ResourceExhausted(message, fix="raise the limit of a file's size: ulimit -f")
        case errno.ENOMEM | errno.EAGAIN:
            return ResourceExhausted(message, fix="free memory, or raise the limit of processes: ulimit -u")
        case errno.EMFILE | errno.ENFILE:
            return ResourceExhausted(message, fix="raise the limit of open files: ulimit -n")
    return PlaceUnusable(message, fix="let TMPDIR name a folder that can be written and permits execution")
