"""What can end a job beside the compiler's own errors: leaves that the worker adds to the tree in `compiler.errors`.

InternalError
├── CompilerCrashed        the compiling process died: a bug of ours, or of a library, met by this model
└── RunCrashed             the process that ran artifacts died: a bug of ours, or of the code that was generated
MachineError
├── InputsMissing          the model, an artifact or what an inference is given is gone, or has other bytes now
├── TimeLimit              wall clock or CPU time
├── MemoryLimit            resident memory, or the kernel ran out
├── ProcessLimit           too many processes at once
├── DiskLimit              one file, or all files of the job, above their limit
├── WallsMissing           a wall of the sandbox that the operator demands does not stand
└── JobKilled              somebody else killed the process
"""

from __future__ import annotations

import errno
import signal
import traceback
from collections.abc import Iterable
from typing import Any

from compiler.contract import job_kinds
from compiler.errors import DiskFull, InternalError, MachineError, TilewrightError
from worker.limits import GIB, Limits


class CompilerCrashed(InternalError):
    code = "compiler_crashed"


class RunCrashed(InternalError):
    code = "run_crashed"


class InputsMissing(MachineError):
    code = "inputs_missing"


class TimeLimit(MachineError):
    code = "time_limit"


class MemoryLimit(MachineError):
    code = "memory_limit"


class ProcessLimit(MachineError):
    code = "process_limit"


class DiskLimit(MachineError):
    code = "disk_limit"


class WallsMissing(MachineError):
    code = "walls_missing"


class JobKilled(MachineError):
    code = "job_killed"


OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOAD = "load"
"""The phase in which a model is read and checked."""


def out_of_time(limits: Limits, phase: str) -> TimeLimit:
    """The whole job took longer than `limits.wall_s` seconds."""
    return TimeLimit(
        f"the job ran longer than its limit of {limits.wall_s:g} s, and was in phase {_named(phase)}",
        fix="lower the time that is to be measured, use a smaller model, "
        "raise the job's max_run_s if it has one, or ask the operator to raise the time limit of jobs",
        details={"limit_s": limits.wall_s, "phase": phase},
    )


def out_of_load_time(limits: Limits, seen: str) -> TimeLimit:
    """Reading and checking the model took more than `limits.load_s`; `seen` says of what."""
    return TimeLimit(
        f"reading and checking the model took longer than its limit of {seen}",
        fix="check that the model is intact; for a huge one ask the operator to raise the time limit of loading",
        details={"limit_s": limits.load_s, "phase": LOAD},
    )


def out_of_finish_time(limits: Limits, phase: str) -> TimeLimit:
    """The job went on for `limits.finish_s` seconds after its owner had asked for the best found so far."""
    return TimeLimit(
        f"the job went on for {limits.finish_s:g} s after it was asked to finish, and was in phase {_named(phase)}",
        fix="submit again and let it end by itself, use a smaller model, "
        "or ask the operator to raise the time limit of finishing",
        details={"limit_s": limits.finish_s, "phase": phase},
    )


def out_of_memory(limits: Limits, seen: str, phase: str = "") -> MemoryLimit:
    """`seen` is what happened, the beginning of the message; the limit in GiB follows it."""
    return MemoryLimit(
        f"{seen}; the limit of a job is {limits.memory_bytes / GIB:.1f} GiB",
        fix="bind smaller input shapes, use a smaller model, or ask the operator to raise the memory limit of jobs",
        details={"limit_bytes": limits.memory_bytes, "phase": phase},
    )


def out_of_processes(limits: Limits, phase: str) -> ProcessLimit:
    """The error of a job that had more processes than it may, not raised."""
    return ProcessLimit(
        f"the job had more than {limits.processes} processes at once",
        fix="use fewer threads, or ask the operator to raise the process limit of jobs",
        details={"limit": limits.processes, "phase": phase},
    )


def out_of_disk(limits: Limits, written: int | None, phase: str) -> DiskLimit:
    """The files of the job occupy more than `limits.disk_bytes`; `written` None: so many that nobody can count them."""
    much = "more files, or deeper folders, than can be counted" if written is None else f"{written >> 20} MiB of files"
    return DiskLimit(
        f"the job wrote {much} in phase {_named(phase)}; the limit of a job is {limits.disk_bytes / GIB:.1f} GiB",
        fix="use a smaller model, or ask the operator to raise the disk limit of jobs",
        details={"limit_bytes": limits.disk_bytes, "phase": phase},
    )


def walls_missing(missing: Iterable[str]) -> WallsMissing:
    """Walls that `TILEWRIGHT_REQUIRE_WALLS` names and that do not stand around a job or a preflight."""
    names = ", ".join(missing)
    return WallsMissing(
        f"not all walls stand that the operator demands around whatever reads a model: {names}",
        fix="ask the operator to mend the machine, or to take the names from TILEWRIGHT_REQUIRE_WALLS",
        details={"missing": names},
    )


def killed(phase: str, seen: str) -> JobKilled:
    """Somebody else killed the job's process; `seen` is what is known of that."""
    return JobKilled(
        f"the job's process was killed from outside in phase {_named(phase)}: {seen}",
        fix="ask the operator what kills processes on that worker (often memory that others take); "
        "the job is tried again by itself",
        details={"phase": phase},
    )


def read_otherwise(given: str, read: str) -> InputsMissing:
    """The compiler read a model of another digest than the one that was laid out for it and compared with its own."""
    return InputsMissing(
        f"the compiler read a model with the digest {read:.64}, and was given {given}",
        fix="compile it again; if it happens again, ask the operator to check that worker's memory and disk",
        details={"given": given, "read": read[:64]},
    )


def garbled(kind: str, reason: str) -> TilewrightError:
    """The process that does a job of this kind does not keep to what is agreed."""
    if job_kinds.of(kind).reads:
        return CompilerCrashed(
            f"the compiling process sent what is not a message: {reason}",
            fix="report this model: its compilation corrupted the compiling process",
        )
    return RunCrashed(
        f"the running process sent what is not a message: {reason}",
        fix="report this artifact: running it corrupted its process",
    )


def unreadable(kind: str, reason: str) -> TilewrightError:
    """It reported success, and what it should have made cannot be read."""
    if job_kinds.of(kind).reads:
        return CompilerCrashed(
            f"the compiler reported success and left no readable artifact: {reason}", fix="report this model"
        )
    return RunCrashed(f"the run reported success and left no readable outputs: {reason}", fix="report this artifact")


def from_exit(kind: str, code: int, limits: Limits, phase: str, log_tail: str) -> TilewrightError:
    """Why a process that ended with `code` (negative: by that signal), and without a result, did so.

    Not for SIGKILL, of which `worker.processes.watch` knows more.
    """
    if code == -signal.SIGXCPU:
        return out_of_time(limits, phase)
    if code == -signal.SIGXFSZ:
        return from_os_error(OSError(errno.EFBIG, "File too large"))
    details: dict[str, Any] = {"phase": phase, "log_tail": log_tail}
    if code < 0:
        details["signal"] = _signal_name(-code)
        end = f"died by {details['signal']}"
    else:
        details["exit_status"] = code
        end = f"left with status {code} and no result"
    where = _named(phase)
    if not job_kinds.of(kind).reads:
        return RunCrashed(
            f"the running process {end} in phase {where}",
            fix="compile the model again; if it happens again, report it: generated code must not crash",
            details=details,
        )
    return CompilerCrashed(
        f"the compiling process {end} in phase {where}",
        fix="check that the model loads elsewhere; if it does, report it: the compiler must not crash on any input",
        details=details,
    )


def from_exception(error: BaseException, limits: Limits) -> TilewrightError:
    """The leaf for whatever was raised."""
    if isinstance(error, TilewrightError):
        return error
    if isinstance(error, MemoryError):
        return out_of_memory(limits, "the job could not get the memory it asked for")
    if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
        return from_os_error(error)
    return InternalError(
        f"the job's process raised {type(error).__name__}: {str(error)[:500]}",
        fix="report this with the job's id and the traceback in details",
        details={"exception": type(error).__name__, "traceback": "".join(traceback.format_exception(error))[-4000:]},
    )


def from_os_error(error: OSError) -> DiskFull | DiskLimit:
    """The worker could not write (`OUT_OF_SPACE`): disk or quota, where a retry may help, or the limit of a file."""
    details = {"errno": errno.errorcode.get(error.errno or 0, "")}
    if error.errno == errno.EFBIG:
        return DiskLimit(
            "a file that the job wrote grew beyond the limit of one file",
            fix="use a smaller model, or ask the operator to raise the limit of one file",
            details=details,
        )
    return DiskFull(
        f"the worker could not write: {error.strerror}",
        fix="ask the operator to free or add disk space on the worker; the job is tried again by itself",
        details=details,
    )


def _named(phase: str) -> str:
    """The first has no name yet."""
    return phase or "start"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
