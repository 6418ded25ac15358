"""A broker of a test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.servers import redis_program

PATIENT = Retry(ConstantBackoff(0.05), retries=2400)
"""Asks a server that is starting for up to two minutes."""


class Valkey:
    """A Valkey server without persistence on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"redis+socket://{folder / 's'}"

    def start(self) -> None:
        socket = str(self.folder / "s")
        command = [
            str(redis_program()),
            "--port",
            "0",
            "--unixsocket",
            socket,
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with redis.Redis(unix_socket_path=socket, retry=PATIENT, retry_on_error=[redis.ConnectionError]) as client:
            client.ping()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
