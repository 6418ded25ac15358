"""Several API processes share a port; each ends with the one that started them, however that one ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel end this process, as SIGTERM does, once the process that forked it is gone; Linux only.

    Killed, that process tells nobody: the others would hold the port against the service that is started next, and
    answer as the old one. Does nothing in a process that nobody forked. Ends this one where the parent is gone already.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent.pid:
        raise SystemExit(1)
