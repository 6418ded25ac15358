"""`python -m worker --queue cpu --queue build`: one worker, for one device or as a builder, until SIGTERM."""

from __future__ import annotations

import argparse
import sys

from compiler.contract import kinds
from worker.app import serve
from worker.opening import own_name
from worker.processes import group


def main(arguments: list[str] | None = None, *, command: tuple[str, ...] = group.CHILD) -> int:
    """Parse, serve; the exit status. `command` is what does each job.

    1 for a queue that cannot be served, such as `cuda:0` without a GPU, and for a database that is not migrated; 78
    where starting again mends nothing: settings that make no sense, walls that are demanded and cannot be raised, a
    database of a newer program.
    """
    parser = argparse.ArgumentParser(prog="python -m worker", description="Run the jobs of some queues, one at a time.")
    parser.add_argument(
        "--queue",
        action="append",
        metavar="NAME",
        help="may be repeated. cpu (default): hold this machine's cores, and run whatever they can; "
        "cuda:0: the same for the first GPU; "
        "build: compile for every CPU and GPU that the compilers here know, and measure nothing; "
        "or one target such as cpu:x86-64-v3",
    )
    parser.add_argument("--name", default="", help="name in the workers' table (default: made of queue, host, process)")
    chosen = parser.parse_args(arguments)
    asked = tuple(dict.fromkeys(chosen.queue or [kinds.CPU.device()]))
    return serve(asked, chosen.name or own_name(asked), command=command)


if __name__ == "__main__":
    sys.exit(main())
