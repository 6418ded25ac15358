"""A server of its own for one measurement: `tilewright up` on a free port, gone afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tilewright import Client
from tilewright.errors import ServerUnreachable, UsageError
from tilewright.up.process import Supervised

ROOT = Path(__file__).parents[1]
"""The checkout, whose code the server runs whatever is installed."""
READY_WITHIN_S = 120.0
STOP_PATIENCE_S = 20.0
_POLL_S = 0.05


@contextlib.contextmanager
def server(data: Path, **settings: str) -> Iterator[Client]:
    """A client of a server whose data folder is `data`, emptied first; every process is gone afterwards.

    settings  variables of the service, `TILEWRIGHT_...`, other than their defaults

    Raises `UsageError` when another `tilewright up` uses the folder, `ServerUnreachable` when the server does not come
    up.
    """
    empty(data)
    log = data.with_name(f"{data.name}.log")
    log.unlink(missing_ok=True)
    ready_file = data / "ready.json"
    # Settings of the user's own service, such as its database, are not this one's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILEWRIGHT_")}
    environment |= {"TILEWRIGHT_COMPARE": "false", **settings}  # benchmarks race by themselves
    environment["XDG_STATE_HOME"] = str(data / "state")  # no command of the user finds this server
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    up = [sys.executable, "-P", "-m", "tilewright", "up", "--port", "0"]
    process = Supervised("up", [*up, "--data", str(data), "--ready-file", str(ready_file)], environment, log)
    process.start()
    try:
        ready = json.loads(_until_written(ready_file, process))
        with Client(ready["url"], Path(ready["key_file"]).read_text().strip()) as client:
            yield client
    finally:
        process.ask_to_stop()
        process.stop(STOP_PATIENCE_S)


def empty(data: Path) -> None:
    """Remove the folder and make it anew, so that nothing of an earlier run is reused. Raises `UsageError`."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (data / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"a `tilewright up` uses {data}", fix="stop it first, or choose another --out") from None
        shutil.rmtree(data)
    data.mkdir(mode=0o700)


def _until_written(file: Path, process: Supervised) -> str:
    deadline = time.monotonic() + READY_WITHIN_S
    while not file.exists():
        if process.mend() or time.monotonic() > deadline:
            raise ServerUnreachable(
                f"`tilewright up` does not come up:\n{process.log_tail()}", fix=f"see {process.log}"
            )
        time.sleep(_POLL_S)
    return file.read_text()
