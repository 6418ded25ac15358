"""`tilewright up` for real: broker, API and worker processes, beside decoys that have their names."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket as socket_module
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.processes import alive
from tilewright.cli import app
from tilewright.client import Client
from tilewright.errors import UsageError
from tilewright.up import run
from tilewright.up.process import Supervised

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]


def eventually(condition: Callable[[], Any], within_s: float = 120.0) -> Any:
    end = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return answer


@dataclass
class Running:
    """A running `tilewright up`."""

    process: subprocess.Popen[bytes]
    ready: dict[str, Any]
    folder: Path
    mark: str

    def family(self) -> dict[int, str]:
        """Process id to command line: what descends from `up`, and what carries this test's mark in its environment."""
        parents, lines = {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                    if state not in (b"Z", b"X"):
                        parents[int(entry.name)] = int(parent)
                        lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        found = {pid for pid in parents if pid == self.process.pid or self._marked(pid)}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: lines[pid] for pid in found}

    def _marked(self, pid: int) -> bool:
        try:
            return self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def only(pids: list[int]) -> int | None:
    """The one that there is, or none."""
    return pids[0] if len(pids) == 1 else None


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Running]:
    for name in ("service", "worker", "compiler", "migrations", "tilewright"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a decoy was imported')\n")
    mark = f"TEST_MARK={tmp_path}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TILEWRIGHT_")},
        "TEST_MARK": str(tmp_path),
        "TILEWRIGHT_SCRATCH_DIR": str(tmp_path / "scratch"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        # The empty entry stands for the current folder, where the decoys are.
        "PYTHONPATH": f"{ROOT}{os.pathsep}",
    }
    program = f"import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.insert(0, {str(ROOT)!r})\n"
    program += "from tilewright.cli import main; main()"
    ready_file = tmp_path / "ready"
    command = [
        sys.executable,
        "-P",
        "-c",
        program,
        "up",
        "--port",
        "0",
        "--data",
        "data",
        "--ready-file",
        str(ready_file),
    ]
    log = (tmp_path / "up.log").open("wb")
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)

    def is_ready() -> bool:
        assert process.poll() is None, (tmp_path / "up.log").read_text()
        return ready_file.exists()

    try:
        eventually(is_ready)
        yield Running(process, json.loads(ready_file.read_text()), tmp_path, mark)
    finally:
        process.kill()
        process.wait()
        log.close()


def test_everything_comes_up_beside_decoys_mends_itself_and_goes_without_a_trace(started: Running) -> None:
    def other_shell() -> str:
        """What a command finds that was told no address, here and without this test's mark."""
        kept = ("PATH", "PYTHONPATH", "HOME")
        environment = {name: found for name, found in os.environ.items() if name in kept}
        environment |= {"XDG_STATE_HOME": str(started.folder / "state"), "XDG_CONFIG_HOME": str(started.folder)}
        environment |= {"XDG_DATA_HOME": str(started.folder / "elsewhere"), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-P", "-m", "tilewright", "workers", "--json"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return done.stdout

    assert json.loads(other_shell())["workers"], "another data folder than the usual one"
    key_file = Path(started.ready["key_file"])
    assert key_file.stat().st_mode & 0o777 == 0o600
    with Client(started.ready["url"], key_file.read_text().strip()) as client:
        assert client.ready()["ready"] is True
        (worker,) = client.workers()
        assert "cpu" in worker.queues

        # A model that is none must fail with a reason, and the worker must live on.
        job = client.wait(client.compile(b"this is no model", {"tuning_budget_s": 0}))
        assert job.state == "FAILED"
        assert job.problem is not None
        assert job.problem["code"]
        assert job.problem["message"]

        # A worker that is killed is replaced.
        # What a process has started has its command line until it has its own.
        pid = eventually(lambda: only([pid for pid, line in started.family().items() if "-m worker " in line]))
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: any(not worker.name.endswith(f":{pid}") for worker in client.workers()))

    family = started.family()
    lines = " ".join(family.values())
    assert "-m service" in lines
    assert "valkey-server" not in lines
    assert "No broker: the database tells workers of jobs." in (started.folder / "up.log").read_text()
    started.process.terminate()
    assert started.process.wait(120) == 0, (started.folder / "up.log").read_text()
    assert started.family() == {}
    assert not any(map(alive, family))
    assert not (started.folder / "ready").exists()
    assert not (started.folder / "data" / "ready.json").exists()
    assert json.loads(other_shell())["error"]["code"] == "server_unreachable"


def test_killing_up_itself_leaves_no_orphan(started: Running) -> None:
    family = started.family()
    lines = " ".join(family.values())
    assert all(part in lines for part in ("-m service", "-m worker "))
    started.process.send_signal(signal.SIGKILL)
    started.process.wait()
    eventually(lambda: not any(map(alive, family)) and started.family() == {})


def ended(name: str, status: int, reason: str, fix: str = "") -> Supervised:
    """One that the next look finds ended, for the fifth time."""

    class Ended(Supervised):
        def mend(self) -> bool:
            self.deaths, self.status, self.reason, self.fix = 5, status, reason, fix
            return True

    return Ended(name, [], {}, Path("/logs") / f"{name}.log")


@pytest.mark.parametrize(
    ("status", "reason", "fix", "says"),
    [
        (os.EX_CONFIG, "TILEWRIGHT_PORT: no number", "", "see /logs/worker.log"),
        (os.EX_CONFIG, "the database is at step 9999", "start the newer version", "start the newer version"),
        (1, "ModuleNotFoundError: No module named 'packaging'", "", "tilewright[server]"),
    ],
)
def test_what_starting_again_does_not_mend_ends_up_with_the_cause(
    status: int, reason: str, fix: str, says: str
) -> None:
    with pytest.raises(run.NotReady) as raised:
        run._mend([ended("worker", status, reason, fix)], pytest.fail)
    assert raised.value.message == f"the worker cannot start: {reason}"
    assert says in raised.value.fix


def test_whatever_else_ends_is_started_again_however_often_and_the_cause_is_said() -> None:
    said: list[str] = []
    full = ended("service", 1, "OSError: [Errno 28] No space left on device")
    run._mend([full, ended("worker-cuda:0", os.EX_CONFIG, "no such GPU")], said.append)
    assert said == [
        f"service ended: {full.reason}; starts again in 8 s; log: /logs/service.log",
        "worker-cuda:0 ended: no such GPU; starts again in 8 s; log: /logs/worker-cuda:0.log",
    ]


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("TILEWRIGHT_LEASE_S", "soon", " cannot start: TILEWRIGHT_LEASE_S: Input should be a valid number"),
        ("TILEWRIGHT_REQUIRE_WALLS", "moat", " cannot start: TILEWRIGHT_REQUIRE_WALLS demands moat"),
    ],
)
def test_a_setting_that_makes_no_sense_ends_up_at_once_with_one_sentence(
    setting: str, value: str, says: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-P", "-m", "tilewright", "up", "--port", "0", "--data", str(tmp_path / "data")]
    environment = {name: found for name, found in os.environ.items() if not name.startswith("TILEWRIGHT_")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), setting: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == run.NotReady.exit_status
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-2:]
    assert says in done.stderr
    assert says in last[0] or says in last[1]
    assert "Traceback" not in done.stderr


def test_a_data_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["up", "--port", "0", "--data", str(tmp_path / "file" / "data")])
    assert done.exit_code == run.NotReady.exit_status
    assert "the service cannot run: [Errno 20] Not a directory" in done.output


def test_a_second_up_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with run._alone(tmp_path), pytest.raises(UsageError, match="another"), run._alone(tmp_path):
        pass


def test_a_port_that_is_taken_is_refused() -> None:
    with socket_module.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="port"):
            run._usable(taken.getsockname()[1])


def test_port_0_becomes_a_free_port() -> None:
    assert run._usable(0) > 0
