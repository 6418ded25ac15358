"""The process between a worker and the job it runs: `python -m worker.processes.launch WATCH LOCK KEEP -- COMMAND...`.

It leads the job's process group, starts COMMAND in it, and ends like COMMAND did. When the pipe WATCH closes,
because the worker closed it or was killed at any instruction, everything it ever started dies: the group, and as
subreaper also what left the group. It is a process of its own because a thread inside the job could wait
forever for an interpreter lock that native code holds. LOCK is the descriptor of the device lock, or -1: it
is held until the last descendant is gone. KEEP names, with commas, the descriptors that COMMAND inherits.

Standard library only, and little of it: this starts before each job.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time

from worker.sandbox import linux

_SWEEPS = 200
_SWEEP_PAUSE_S = 0.01


def launch(watch: int, lock: int, keep: list[int], command: list[str]) -> int:
    """Run `command` until it ends or `watch` closes; its return code as `subprocess` gives it."""
    worker = os.getppid()
    if linux.LINUX:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    launcher = os.getpid()
    job = subprocess.Popen(
        command,
        pass_fds=[*keep, *([lock] if lock >= 0 else [])],
        preexec_fn=lambda: linux.die_with_parent(launcher),
    )
    for descriptor in keep:
        os.close(descriptor)
    ended, ended_writer = os.pipe()
    signal.set_wakeup_fd(_nonblocking(ended_writer))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        code = job.poll()
        if code is not None:
            break
        ready, _, _ = select.select([watch, ended], [], [], 1.0)
        if ended in ready:
            os.read(ended, 4096)
        if watch in ready or os.getppid() != worker:
            job.kill()
            code = -signal.SIGKILL
            break
    sweep(launcher)
    return code


def sweep(launcher: int) -> None:
    """Kill every descendant of `launcher`, until none is left or they cannot be killed."""
    for _ in range(_SWEEPS):
        children = descendants(launcher)
        for pid in children:
            _kill(pid)
        _reap()
        if not children:
            return
        time.sleep(_SWEEP_PAUSE_S)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, without zombies. Empty where there is no /proc; the group is killed by the worker.

    A process may be a zombie while its threads still end and its children are still its own, so the way to them leads
    through zombies.
    """
    parents: dict[int, int] = {}
    dead: set[int] = set()
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            parents[int(name)] = int(parent)
            if state in (b"Z", b"X"):
                dead.add(int(name))
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sorted(below - dead - {root})


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _nonblocking(descriptor: int) -> int:
    os.set_blocking(descriptor, False)
    return descriptor


def _end_like(code: int) -> None:
    """Leave with the same exit status or by the same signal, without a core dump of this process."""
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def main(arguments: list[str]) -> None:
    """Parse `WATCH LOCK KEEP -- COMMAND...` and launch."""
    watch, lock, keep, dashes, *command = arguments
    if dashes != "--" or not command:
        sys.exit("usage: python -m worker.processes.launch WATCH LOCK KEEP -- COMMAND...")
    _end_like(launch(int(watch), int(lock), [int(number) for number in keep.split(",") if number], command))


if __name__ == "__main__":
    main(sys.argv[1:])
