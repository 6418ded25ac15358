"""Processes of the service that die where they are told to.

Each is a fork of one that has imported the service already: of those that are killed, each next one would spend most
of its time on that.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import cast

from tests.torture import faults
from tests.torture.points import PROGRAM, Role, arm
from tilewright.up.process import Supervised
from worker.sandbox import linux

CHILD = (sys.executable, "-I", str(Path(__file__).with_name("child.py")))
TALLY_S = 0.1
"""Jobs here take half a second: so some of what they used is tallied by heartbeats, the rest at the end."""


def main(role: Role, fates: Path, fault: str, arguments: list[str]) -> int:
    """Be a process of this role; what it returns. `fault` names a bug to give it, or is `faults.NONE`."""
    arm(role, fates)
    if fault != faults.NONE:
        faults.FAULTS[fault](fates)
    if role == "worker":
        from service.jobs.scheduling import lease
        from worker.__main__ import main as worker

        lease.TALLY_S = TALLY_S
        return worker(arguments, command=CHILD)
    from service.__main__ import main as service

    return service(["reconcile" if role == "reconciler" else "serve", *arguments])


@dataclass(frozen=True)
class Fork:
    """What `Supervised` asks of a `subprocess.Popen`, of a process that is its parent's grandchild."""

    process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int:
        self.process.join()
        return cast(int, self.process.exitcode)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@dataclass
class Forked(Supervised):
    """`command` is role, folder of the fates, fault, and the arguments of the program of that role."""

    def start(self) -> None:
        """Fork it. It dies with the process that it is forked from, and that one with this one."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PROGRAM.values(), __name__])
        process = context.Process(target=become, args=(self.command, dict(self.environment), self.log))
        process.start()
        self.process = Fork(process)  # type: ignore[assignment]
        self._started = time.monotonic()

    def _dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None


def become(command: list[str], environment: Mapping[str, str], log: Path) -> None:
    """Be what `Supervised` starts, from a fork on."""
    os.setpgid(0, 0)
    if linux.LINUX:
        linux.die_with_parent(os.getppid())
    with log.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    role, fates, fault, *arguments = command
    multiprocessing.parent_process = lambda: None  # to itself it is a program that somebody started
    sys.exit(main(cast(Role, role), Path(fates), fault, arguments))
