"""`python -m worker.healthy`: whether a worker of this machine lives, by what the workers' table says of it.

This is the health check of a container that runs one worker: its host name is the container's own.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterable

from service.config import Settings
from service.db import workers
from service.db.engine import Database
from service.errors import DatabaseUnavailable


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 when a worker reported within TILEWRIGHT_WORKER_ALIVE_S seconds, else 1 with the reason."""
    parser = argparse.ArgumentParser(prog="python -m worker.healthy", description="Does this machine's worker live?")
    parser.add_argument("--name", default="", help="of a worker that was started with --name")
    chosen = parser.parse_args(arguments)
    settings = Settings()
    db = Database.of(settings)
    try:
        with db.read() as session:
            names = [worker.name for worker in workers.alive(session, settings.worker_alive_s)]
    except DatabaseUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        db.dispose()
    mine = list(of_machine(names, socket.gethostname())) if not chosen.name else [chosen.name] * (chosen.name in names)
    print(", ".join(mine) or f"no worker of this machine among: {', '.join(names) or 'none'}")
    return 0 if mine else 1


def of_machine(names: Iterable[str], host: str) -> Iterable[str]:
    """Those that `python -m worker` made of queues, the host's first 60 characters and process."""
    return (name for name in names if name.rpartition(":")[0].endswith(f"@{host[:60]}"))


if __name__ == "__main__":
    sys.exit(main())
