"""What holds for every test.

Seeds are fixed, there are no deadlines, servers come on request, and whatever is skipped has a visible reason.
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from compiler.measure import cores
from compiler.steps import proving
from compiler.steps.dividing import proof as dividing_proof
from service.db import migrate
from tests.compiler import objects
from tests.compiler.objects import keep_cubins, keep_nothing, keep_objects
from tests.servers import Databases, Missing, Redis, running_postgres, running_redis

# Derandomised, so that a run can be repeated; without deadlines, because a loaded machine is no failure.
settings.register_profile(
    "tilewright", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tilewright")
# Nor may what is drawn hang on what this process has imported: hypothesis would read every module of ours for constants
# to draw, in each process anew.
providers._get_local_constants = lambda: providers._local_constants

os.environ.setdefault("TILEWRIGHT_COMPARE", "false")  # a race takes seconds: a test that is about one asks for it

pytest_plugins = ["tests.pace", "tests.exhaustive"]

PROBE_SECONDS = 60
LATENCY_SECONDS = 0.01
"""For how long a compilation in a test's own process times whole runs."""
GARBAGE = 20_000
"""New objects until the youngest are looked through; at Python's 700, a twentieth of a compilation goes into it."""
POSTGRES = "TILEWRIGHT_TEST_POSTGRES_URL"
"""The variable that names a PostgreSQL database to use instead of a server of our own; its user may create others."""


@functools.cache
def package_index_answers() -> bool:
    """Whether pip, as it is configured here, can fetch one small package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", folder]
        try:
            probe = subprocess.run(
                [*command, "--retries", "0", "iniconfig"], capture_output=True, timeout=PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return probe.returncode == 0


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `network` test where no package index answers, except in CI, where that is a failure."""
    if item.get_closest_marker("network") and os.environ.get("CI") != "true" and not package_index_answers():
        pytest.skip("no package index answers here (CI=true runs this test all the same)")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_compiled_twice() -> Iterator[None]:
    """In the tests' processes, but where a test is `compiled_each_time`."""
    with pytest.MonkeyPatch.context() as patch:
        keep_objects(patch)
        keep_cubins(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def latencies_take_a_moment() -> Iterator[None]:
    """Each compilation runs its artifact for half a second, with all lanes: no test needs more than a few runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proving, "LATENCY_SECONDS", LATENCY_SECONDS)
        patch.setattr(dividing_proof, "STREAM_SECONDS", LATENCY_SECONDS)
        patch.setattr(cores, "BLOCK_S", LATENCY_SECONDS)
        yield


@pytest.fixture(scope="module", autouse=True)
def cores_are_left_as_they_were() -> Iterator[None]:
    """What a test file takes of its process's cores it gives back: the tests of other files want them."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    yield
    after = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before)
    assert after == before, "a test of this file left its process on fewer cores"


@pytest.fixture(scope="module")
def host_as_shipped() -> Iterator[None]:
    """For tests of what runs the kernels of an artifact: it is optimised as for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "is_host_as_shipped", True)
        yield


@pytest.fixture
def compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that is about the run of a compiler."""
    keep_nothing(monkeypatch)


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """PostgreSQL databases on request, of one server for all tests of this process; skips where there is none."""
    if given := os.environ.get(POSTGRES):
        databases = Databases(sa.make_url(given))
        yield databases
        databases.drop_all()
        return
    try:
        with running_postgres() as server:
            yield Databases(server.url)
    except Missing as reason:
        pytest.skip(f"{reason}; or name a server with {POSTGRES}")


@pytest.fixture
def postgres_url(databases: Databases) -> Iterator[str]:
    """A PostgreSQL database at the newest step of the history, without a row; nobody else uses it during the test."""
    with databases.emptied() as url:
        yield url


@pytest.fixture
def empty_postgres_url(databases: Databases) -> Iterator[str]:
    """A PostgreSQL database of this test's own, without a table."""
    url = databases.empty()
    yield url
    databases.drop(url)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file at the newest step of the history, to be copied: the history takes longer than most tests."""
    file = tmp_path_factory.mktemp("migrated") / "tilewright.db"
    migrate.upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis server for all tests of this process; skips where there is none."""
    try:
        with running_redis() as server:
            yield server
    except Missing as reason:
        pytest.skip(str(reason))
