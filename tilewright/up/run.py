"""`tilewright up`: start everything, say where it is, keep it running, stop it cleanly."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright import running
from tilewright.discover import READY_FILE
from tilewright.errors import ClientError, UsageError
from tilewright.extras import require
from tilewright.running import Running
from tilewright.up import gpus, page
from tilewright.up.process import Supervised

TICK_S = 0.2
READY_WITHIN_S = 90.0
"""After which it is said that it takes long."""
MISSING_MODULE = "ModuleNotFoundError: "
STOP_PATIENCE_S = 8.0
BROKER, NO_BROKER = "TILEWRIGHT_BROKER_URL", "memory://localhost"
TLS = ("TILEWRIGHT_TLS_CERTIFICATE_FILE", "TILEWRIGHT_TLS_KEY_FILE", "TILEWRIGHT_TLS_CLIENT_CA_FILE")


class NotReady(ClientError):
    """A part of the service cannot start, and starting it again does not help."""

    exit_status = 3
    code = "not_ready"


@dataclass(frozen=True)
class Ready:
    """What a user needs to know of a running `up`; `page` opens the page signed in, once, and is in no file."""

    url: str
    key_file: Path
    data: Path
    pid: int
    page: str = ""

    def to_json(self) -> dict[str, object]:
        """Plain JSON."""
        return {"url": self.url, "key_file": str(self.key_file), "data": str(self.data), "pid": self.pid}


def up(
    data: Path, port: int, ready_file: Path | None, announce: Callable[[Ready], None], say: Callable[[str], None]
) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP; at return every process is gone.

    port      TCP port of the API on the loopback interface; 0 takes a free one
    announce  is called once, when /readyz has answered 200
    say       is called with a line for each process that ended and is started again

    Raises `UsageError` when the extra `server` is not installed, another `up` uses `data`, or the port is taken;
    `NotReady` for a cause that starting again does not mend, such as a setting that makes no sense.
    """
    require("server", "`tilewright up`")
    data = data.resolve()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    (data / "logs").mkdir(exist_ok=True, mode=0o700)
    with _stop_signals() as stop, _alone(data), _found(data, _usable(port), say) as (ready, takes_requests):
        files = [data / READY_FILE, *([ready_file] if ready_file else [])]
        processes = _processes(ready)
        try:
            for process in processes:
                process.start()
            if _until_ready(ready, processes, stop, say):
                for file in files:
                    _write(file, json.dumps(ready.to_json()) + "\n")
                takes_requests()
                announce(replace(ready, page=page.link(ready.url, ready.key_file)))
                while not _stopped(stop):
                    _mend(processes, say)
        finally:
            for file in files:
                file.unlink(missing_ok=True)
            _stop(processes)


@contextlib.contextmanager
def _found(data: Path, port: int, say: Callable[[str], None]) -> Iterator[tuple[Ready, Callable[[], None]]]:
    """Lets other shells find this server: as one that starts, until the function that is given is called."""
    ready = Ready(f"http://127.0.0.1:{port}", data / "api_key", data, os.getpid())
    begun = running.begun_at(ready.pid) or 0
    server = Running(ready.url, str(ready.key_file), str(data), ready.pid, begun, time.time())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(running.registered(server))
        except OSError as error:
            say(f"commands do not find this server by themselves, give them --url {ready.url}: {error}")
            yield ready, lambda: None
            return
        yield ready, lambda: running.announce(server)


def has_broker() -> bool:
    """Whether the environment names a broker; without one the database alone tells workers of jobs."""
    return any(os.environ.get(name) for name in (BROKER, f"{BROKER}_FILE"))


def _processes(ready: Ready) -> list[Supervised]:
    environment = {
        **os.environ,
        "TILEWRIGHT_DATA_DIR": str(ready.data),
        "TILEWRIGHT_HOST": "127.0.0.1",
        "TILEWRIGHT_PORT": ready.url.rpartition(":")[2],
        **dict.fromkeys(TLS, ""),  # on the loopback interface it is plain HTTP
        **({} if has_broker() else {BROKER: NO_BROKER}),
        # An empty entry means the current folder: a service.py lying there must not be taken for ours.
        "PYTHONPATH": os.pathsep.join(
            path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)
        ),
    }
    python = [sys.executable, "-P", "-m"]
    commands = (
        ("service", [*python, "service"]),
        ("worker", [*python, "worker", "--queue", "cpu", "--queue", "build"]),
        *((f"worker-{queue}", [*python, "worker", "--queue", queue]) for queue in gpus.queues()),
    )
    logs = ready.data / "logs"
    return [
        Supervised(name, command, environment, logs / f"{name.replace(':', '-')}.log") for name, command in commands
    ]


def _until_ready(ready: Ready, processes: list[Supervised], stop: int, say: Callable[[str], None]) -> bool:
    """Wait for /readyz; False when asked to stop before. Raises `NotReady`."""
    late = time.monotonic() + READY_WITHIN_S
    import httpx  # takes a tenth of a second, which a port that is taken does not wait for

    with httpx.Client(base_url=ready.url, timeout=5.0, trust_env=False) as http:
        while not _stopped(stop):
            _mend(processes, say)
            with contextlib.suppress(httpx.TransportError):
                if http.get("/readyz").status_code == 200:
                    return True
            if time.monotonic() > late:
                say(f"not ready after {READY_WITHIN_S:.0f} s, and waited for; logs: {ready.data / 'logs'}")
                late = math.inf
    return False


def _mend(processes: list[Supervised], say: Callable[[str], None]) -> None:
    """Start again what ended. Raises `NotReady` where that mends nothing."""
    for process in processes:
        if process.mend():
            # A GPU that does not work is no reason not to run.
            if not gpus.is_of(process.name.removeprefix("worker-")):
                _demand_mendable(process)
            say(f"{process.name} ended: {process.reason}; starts again in {process.pause_s:g} s; log: {process.log}")


def _demand_mendable(process: Supervised) -> None:
    missing = process.reason.startswith(MISSING_MODULE)
    if process.status == os.EX_CONFIG or missing:
        fix = "pip install --force-reinstall 'tilewright[server]'" if missing else process.fix
        raise NotReady(f"the {process.name} cannot start: {process.reason}", fix=fix or f"see {process.log}")


def _stop(processes: list[Supervised]) -> None:
    for process in processes:
        process.ask_to_stop()
    for process in processes:
        process.stop(STOP_PATIENCE_S)


@contextlib.contextmanager
def _stop_signals() -> Iterator[int]:
    """A descriptor that turns readable on SIGINT, SIGTERM or SIGHUP."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def note(number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"!")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _stopped(stop: int) -> bool:
    """Whether a signal came; waits one tick for it."""
    return bool(select.select([stop], [], [], TICK_S)[0])


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Hold the data folder's lock. Raises `UsageError` when another `up` has it."""
    import fcntl  # Linux and macOS have it; the commands that only talk to a server run anywhere

    with (data / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another `tilewright up` uses {data}", fix="stop it first, or choose another folder with --data"
            ) from None
        yield


def _usable(port: int) -> int:
    """The port, or a free one for 0. Raises `UsageError` when it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror}", fix="choose another with --port"
            ) from error
        return int(probe.getsockname()[1])


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(file)
