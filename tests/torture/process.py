"""`python -m tests.torture.process ROLE FATES FAULT [ARGUMENT...]`.

A process of the service that dies where it is told to.

FAULT names a bug to give it (`tests.torture.faults`), or is `-`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from tests.torture import faults
from tests.torture.points import Role, arm

CHILD = (sys.executable, "-I", str(Path(__file__).with_name("child.py")))
TALLY_S = 0.1
"""Jobs here take half a second: so some of what they used is tallied by heartbeats, the rest at the end."""


def main(role: Role, fates: Path, fault: str, arguments: list[str]) -> int:
    """What the process itself returns."""
    arm(role, fates)
    if fault != faults.NONE:
        faults.FAULTS[fault](fates)
    if role == "worker":
        from service.jobs import lease
        from worker.__main__ import main as worker

        lease.TALLY_S = TALLY_S
        return worker(arguments, command=CHILD)
    from service.__main__ import main as service

    return service(["reconcile" if role == "reconciler" else "serve", *arguments])


if __name__ == "__main__":
    sys.exit(main(cast(Role, sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
