"""kill -9 in the middle of a compilation, of the worker and of the API."""

from __future__ import annotations

import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from compiler.codegen.build import find_toolchain
from tests.end_to_end import models
from tests.end_to_end.house import House, Process, eventually, running
from tilewright.client import Client
from tilewright.errors import ServerUnreachable
from tilewright.wire import Job, JobEvent

OPTIONS = {"tuning_budget_s": models.ALL_CANDIDATES_S, "threads": 1}


@dataclass(frozen=True)
class HeldCompiler:
    """A C compiler that works while `hold` does not exist: how a job is kept in a phase for as long as a test wants."""

    folder: Path

    @property
    def hold(self) -> Path:
        return self.folder / "hold"

    def install(self) -> Mapping[str, str]:
        """The environment variables that make the compiler of a house of it."""
        self.folder.mkdir()
        real = find_toolchain(os.environ.get("CC", "")).path
        wait = f'while [ "$1" != --version ] && [ -e {shlex.quote(str(self.hold))} ]; do sleep 0.05; done'
        program = self.folder / "held-cc"
        program.write_text(f'#!/bin/sh\n{wait}\nexec {shlex.quote(real)} "$@"\n')
        program.chmod(0o755)
        return {"CC": program.name, "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> HeldCompiler:
    return HeldCompiler(tmp_path_factory.mktemp("compiler") / "bin")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, installed: HeldCompiler) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("house"), variables=installed.install()) as house:
        yield house


@pytest.fixture
def compiler(installed: HeldCompiler) -> Iterator[HeldCompiler]:
    """Let go after each test, however it ends."""
    yield installed
    installed.hold.unlink(missing_ok=True)


def caught_compiling(house: House, client: Client, compiler: HeldCompiler, size: int) -> tuple[Job, list[JobEvent]]:
    """A job that waits for the C compiler, and its events until its kernels matter.

    No other `size` of image has records for it.
    """
    compiler.hold.touch()
    job = client.compile(models.tiny(models.LONG, size=size), OPTIONS)
    seen = []
    for event in client.events(job):
        seen.append(event)
        if event.kind == "phase" and event.data["phase"] == "choose":
            break
    eventually(lambda: any("held-cc" in one.command for one in house.compiling()), "a C compiler at work")
    assert client.job(job).state == "RUNNING"
    return job, seen


def ended(client: Client, job: Job, seen: list[JobEvent]) -> list[JobEvent]:
    """The whole log, which goes on without a gap where it was left, and says SUCCEEDED once, at its end."""
    rest = list(client.events(job, after=seen[-1].seq))
    whole = list(client.events(job))
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert seen + rest == whole
    assert states(whole).count("SUCCEEDED") == 1
    assert states(whole)[-1] == "SUCCEEDED"
    assert whole[-1].ends_job
    return whole


def states(events: list[JobEvent]) -> list[str]:
    return [str(event.data["state"]) for event in events if event.kind == "state"]


def assert_downloads(client: Client, job: Job, folder: Path) -> None:
    artifact = client.download(job, folder / "it.tw")
    assert zipfile.ZipFile(artifact).testzip() is None
    measured = client.report(job)["report"]["records_measured"]
    assert len(list(client.tuning_records(job=job.id, kind="kernel"))) == measured


def assert_nothing_compiles(house: House, before: list[Process]) -> None:
    eventually(lambda: not any(one.alive for one in before), f"the end of {before}")
    eventually(lambda: not house.compiling(), f"no orphans, but there are {house.compiling()}")


@pytest.mark.slow
def test_a_killed_worker_costs_an_attempt_and_nothing_else(
    house: House, client: Client, compiler: HeldCompiler, tmp_path: Path
) -> None:
    job, seen = caught_compiling(house, client, compiler, 32)
    before = house.compiling()
    assert any("worker.attempt.child" in one.command for one in before)
    killed = house.kill("worker")
    eventually(lambda: not any(one.alive for one in before), f"the end of {before}")
    compiler.hold.unlink()

    whole = ended(client, job, seen)
    assert states(whole) == ["QUEUED", "LEASED", "RUNNING", "QUEUED", "LEASED", "RUNNING", "SUCCEEDED"]
    assert client.job(job).said["attempt"] == 2
    assert house.part("worker").pid != killed.pid
    assert_downloads(client, job, tmp_path)
    assert_nothing_compiles(house, before)


def test_a_killed_api_costs_nothing(house: House, client: Client, compiler: HeldCompiler, tmp_path: Path) -> None:
    job, seen = caught_compiling(house, client, compiler, 40)
    before = house.compiling()
    killed = house.kill("service")
    eventually(lambda: house.part("service").pid != killed.pid, "another API")
    eventually(lambda: answers(house), "an API that answers")
    assert all(one.alive for one in before if "worker.attempt.child" in one.command), "the compilation never noticed"
    compiler.hold.unlink()

    whole = ended(client, job, seen)
    assert states(whole) == ["QUEUED", "LEASED", "RUNNING", "SUCCEEDED"]
    assert client.job(job).said["attempt"] == 1
    assert_downloads(client, job, tmp_path)
    assert_nothing_compiles(house, before)


def answers(house: House) -> bool:
    with house.client() as client:
        try:
            return bool(client.ready()["ready"])
        except ServerUnreachable:
            return False
