"""Which walls of the sandbox this machine raises, found out by raising them.

`python -m worker.sandbox.restrictions [gpu]` prints their names as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from service.errors import Misconfigured, NotReady
from worker import inquiry
from worker.limits import Limits
from worker.sandbox.enter import WALLS, enter


def demand(required: Sequence[str], *, gpu: bool) -> None:
    """Raises `NotReady` where one of the `required` does not stand around a job, with a GPU or without."""
    if not required:
        return
    try:
        standing = inquiry.answer("worker.sandbox.restrictions", *(["gpu"] if gpu else []))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotReady(f"no wall around jobs can be raised: {error}", fix="see what the worker printed") from error
    if missing := [name for name in required if name not in standing]:
        raise Misconfigured(
            f"TILEWRIGHT_REQUIRE_WALLS demands {', '.join(missing)}, which this machine cannot raise",
            fix=fix_of(missing),
        )


def fix_of(missing: Sequence[str]) -> str:
    """What it takes to raise these walls; a name that is none has nothing that it takes."""
    taken = dict.fromkeys(WALLS[name] for name in missing if name in WALLS)
    unknown = [name for name in missing if name not in WALLS]
    known = [f"there is no wall {', '.join(unknown)}, but {', '.join(WALLS)}"] if unknown else []
    return "; ".join([*known, *taken, "or take the names from the setting"])


if __name__ == "__main__":
    print(json.dumps(enter(Limits(), None, [], [], gpu="gpu" in sys.argv[1:])))
