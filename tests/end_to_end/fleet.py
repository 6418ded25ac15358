"""The many-machine form without containers: the processes of docker-compose.yml with its settings.

Each works in folders of its own, over a PostgreSQL and a Redis that are started with the arguments given there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import httpx

from tests import compose
from tests.end_to_end.house import ROOT, eventually
from tests.servers import GUARD_S, Databases, Postgres, Redis, free_port, running_postgres, running_redis
from tilewright.client import Client


@dataclass
class Machine:
    """One process, on what it takes for a machine of its own."""

    name: str
    process: subprocess.Popen[bytes]
    folder: Path
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where it answers, if it is an API."""
        return f"http://127.0.0.1:{self.environment['TILEWRIGHT_PORT']}"

    def log(self) -> str:
        """The end of what it printed."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    def client(self, key: str) -> Client:
        """A client of this API; to be closed."""
        return Client(self.url, key)

    def is_ready(self) -> bool:
        """Whether the API answers."""
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(httpx.TransportError):
            # Without `verify=False` each request reads all certificates: 20 ms of a core that others wait for.
            return httpx.get(f"{self.url}/healthz", trust_env=False, verify=False).status_code == 200
        return False


@dataclass
class Fleet:
    """Machines over one database, one broker and one blob store. `variables` are those of docker-compose.yml."""

    folder: Path
    database_url: str
    """With the password."""
    variables: Mapping[str, str]
    machines: list[Machine] = field(default_factory=list)
    python: str = sys.executable
    """Of the environment in which the processes run."""
    python_path: str = str(ROOT)

    @property
    def key(self) -> str:
        """The operator's key."""
        return self.variables["TILEWRIGHT_API_KEY"]

    def start(self, service: str, **settings: str) -> Machine:
        """One more process of a service; further settings by name, such as `TILEWRIGHT_LOOK_EVERY_S`."""
        folder = self._new_folder(service)
        environment = self._environment(service, folder, settings)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self._command(service), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.machines.append(Machine(service, process, folder, environment))
        return self.machines[-1]

    def run(self, service: str, *instead: str) -> str:
        """What a service printed that ends by itself, or this other command with its settings.

        Asserts that it succeeded.
        """
        folder = self._new_folder(service)
        command = [*self._command(service)[:4], *instead] if instead else self._command(service)
        environment = self._environment(service, folder, {})
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=GUARD_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def apis(self, count: int) -> list[Machine]:
        """This many APIs, all answering."""
        started = [self.start("api") for _ in range(count)]
        for api in started:
            eventually(api.is_ready, "an API that answers")
        return started

    def stop(self) -> None:
        """SIGTERM for all; asserts that none had died before and that all end. Without that they are killed."""
        died = [machine for machine in self.machines if machine.process.poll() is not None]
        for machine in self.machines:
            machine.process.terminate()
        try:
            for machine in self.machines:
                machine.process.wait(GUARD_S)
            assert not died, self.log()
        finally:
            for machine in self.machines:
                machine.process.kill()
                machine.process.wait()

    def log(self) -> str:
        """What the processes printed."""
        return "\n".join(f"--- {machine.folder.name}\n{machine.log()}" for machine in self.machines)

    def _secrets(self) -> dict[str, Path]:
        """The files of secrets, made where they are missing; they lie beside the machines' folders."""
        place = self.folder.with_name("secrets")
        place.mkdir(mode=0o700, exist_ok=True)
        files = {}
        for name, spec in compose.read(self.variables)["secrets"].items():
            files[name] = place / name
            files[name].write_text(self.variables[spec["environment"]])
        return files

    def _new_folder(self, service: str) -> Path:
        folder = self.folder / f"{service}-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        return folder

    def _command(self, service: str) -> list[str]:
        python, *words = compose.service(service, self.variables)["command"]
        assert python == "python"
        return [self.python, *words]

    def _environment(self, service: str, folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
        """The service's own block; what it mounts lies below `folder`, what all mount below the fleet's."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "PYTHON"))
        }
        reported: dict[str, str] = compose.service(service, self.variables)["environment"]
        here = {"/data": folder / "data", "/scratch": folder / "scratch", "/blobs": self.folder / "blobs"}
        here |= {f"/run/secrets/{name}": file for name, file in self._secrets().items()}
        placed = {name: str(here.get(value, value)) for name, value in reported.items()}
        if "TILEWRIGHT_PORT" in placed:
            placed.update(TILEWRIGHT_HOST="127.0.0.1", TILEWRIGHT_PORT=str(free_port()))
        return {**inherited, "PYTHONPATH": self.python_path, **placed, **settings}


@contextlib.contextmanager
def running(
    folder: Path, more: Mapping[str, str] = MappingProxyType({}), *, python: Path | None = None
) -> Iterator[Fleet]:
    """A fleet over fresh, migrated servers, without machines yet; all are gone afterwards. Raises `servers.Missing`.

    python  of an environment in which the wheel is installed, to run that and not the checkout
    """
    variables = {
        "POSTGRES_HOST": "127.0.0.1",
        "POSTGRES_PORT": str(free_port()),
        "POSTGRES_PASSWORD": secrets.token_hex(24),
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(free_port()),
        "REDIS_PASSWORD": secrets.token_hex(24),
        "TILEWRIGHT_API_KEY": secrets.token_hex(24),
        "API_PROCESSES": "1",
        **more,
    }
    reported = compose.service("postgres", variables)
    database = Postgres(
        user=reported["environment"]["POSTGRES_USER"],
        password=variables["POSTGRES_PASSWORD"],
        port=int(variables["POSTGRES_PORT"]),
        arguments=_after(reported["command"], "postgres"),
    )
    broker = Redis(
        port=int(variables["REDIS_PORT"]),
        password=variables["REDIS_PASSWORD"],
        arguments=("--requirepass", variables["REDIS_PASSWORD"], *_of_redis(variables)),
    )
    (folder / "fleet").mkdir()
    with running_postgres(database), running_redis(broker):
        url = Databases(database.url).empty(reported["environment"]["POSTGRES_DB"])
        fleet = Fleet(folder / "fleet", url, variables)
        if python is not None:
            fleet.python, fleet.python_path = str(python), ""
        try:
            fleet.run("migrate")
            yield fleet
        finally:
            fleet.stop()


def _of_redis(variables: Mapping[str, str]) -> list[str]:
    """The arguments that the container's shell gives Redis behind the file with the password."""
    shell, option, script = compose.service("redis", variables)["command"]
    assert (shell, option) == ("sh", "-c")
    return _after(shlex.split(script.rpartition("exec ")[2]), "valkey-server")[1:]


def _after(command: Sequence[str], program: str) -> list[str]:
    """The arguments of a container's command."""
    assert command[0] == program
    return list(command[1:])
