from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator

import pytest

from compiler.codegen.build import find_toolchain
from compiler.errors import ToolchainMissing
from tests.end_to_end.house import House, running
from tilewright.client import Client


@pytest.fixture(scope="session", autouse=True)
def fit_machine() -> None:
    """What every test here needs."""
    if not sys.platform.startswith("linux"):
        pytest.skip("processes are looked for in /proc")
    try:
        find_toolchain(os.environ.get("CC", ""))
    except ToolchainMissing as reason:
        pytest.skip(reason.message)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """`tilewright up`, once for the tests of a file."""
    with running(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(scope="module")
def client(house: House) -> Iterator[Client]:
    with house.client() as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure stands what the processes printed."""
    report = yield
    house = getattr(item, "funcargs", {}).get("house")
    if report.failed and isinstance(house, House):
        report.sections.append(("tilewright up", house.log()))
    return report
