"""How the tests use their time: the longest files first, a quick choice of tests, and the table that both read."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("seconds.json")
"""Seconds of processor time that each test file took in the run that was kept last, by its path.

Beside it each test function that took `KEPT_S` or more with the first set of its parameters, by its id, without what
is set up for it: others share that. Processes that they started and waited for count. Wall time would say more of what
else the machine was doing.
"""
KEPT_S = 0.5
UNKNOWN_S = 20.0
"""What a file that the table does not know is taken to last: few last longer."""
QUICK_FILE_S = 1.0
"""Files that took longer are no part of the quick tests."""
QUICK_MOST_S = 2 * QUICK_FILE_S
"""A file that is new, or takes longer than it did, is left when it has had that long; another machine may be slower."""
NEVER_QUICK = ("slow", "processes")
"""Markers of tests that are no quick ones either."""
TOOK = "processor_s"
"""The property of a report that says what its part of a test took."""
COMPILERS = ("nvrtc",)
"""Libraries whose names say that loading them is running a compiler."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilewright")
    group.addoption(
        "--quick",
        action="store_true",
        help="only tests that start no process (compiler, server) and take no longer than a moment",
    )
    group.addoption(
        "--keep-seconds",
        action="store_true",
        help="keep what each file and each long test took in the repository",
    )
    group.addoption(
        "--minutes",
        type=float,
        help="the shortest files first; what has not begun after this time is skipped, and counted at the end",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("keep_seconds") and any(config.getoption(name) for name in ("quick", "markexpr", "keyword")):
        raise pytest.UsageError("--keep-seconds with --quick, -m or -k would keep that what is left out takes no time")
    if config.getoption("keep_seconds") or config.getoption("quick"):
        config.pluginmanager.register(Meter(QUICK_MOST_S if config.getoption("quick") else math.inf))
    if config.getoption("keep_seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Clock())
    if config.getoption("minutes") is not None:
        config.pluginmanager.register(Limit(config.getoption("minutes")))


def pytest_sessionstart(session: pytest.Session) -> None:
    """A process that runs quick tests starts no other; the one that only hands tests out to workers does."""
    runs_tests = hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None)
    if session.config.getoption("quick") and runs_tests:
        sys.addaudithook(skip_what_is_not_quick)


def skip_what_is_not_quick(event: str, arguments: Sequence[object]) -> None:
    """An audit hook: skips the test that starts a process or loads a compiler."""
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork"):
        pytest.skip("not quick: starts a process", allow_module_level=True)
    if event == "ctypes.dlopen" and any(name in str(arguments[0]) for name in COMPILERS):
        pytest.skip("not quick: loads a compiler", allow_module_level=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes long as a whole, without importing it."""
    if config.getoption("quick") and kept().get(name_of(collection_path), 0.0) > QUICK_FILE_S:
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every other process begin at the other end: each then reads what the others have compiled, assertions in it.

    In a fresh clone that compilation is half of what finding the tests takes.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and begins_at_the_end(collector.config):
        report.result.reverse()
    return report


def begins_at_the_end(config: pytest.Config) -> bool:
    """Whether this is the second, fourth, ... of several processes."""
    return hasattr(config, "workerinput") and int(config.workerinput["workerid"].removeprefix("gw")) % 2 == 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, or last where time is limited; the order within a file stays."""
    if config.getoption("quick"):
        slow = [item for item in items if any(item.get_closest_marker(marker) for marker in NEVER_QUICK)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not any(item.get_closest_marker(marker) for marker in NEVER_QUICK)]
    items[:] = longest_first(items, kept(), last=config.getoption("minutes") is not None)


def longest_first(items: Sequence[pytest.Item], seconds: Mapping[str, float], last: bool = False) -> list[pytest.Item]:
    """The items, file by file: no process is to be left alone with a long file when the others are done.

    last  the other way round: in a limited time, that runs the most tests
    """
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[name_of(item.path)].append(item)
    order = sorted(files, key=lambda file: (-seconds.get(file, UNKNOWN_S), file), reverse=last)
    return [item for file in order for item in files[file]]


def kept() -> dict[str, float]:
    """The table, empty where there is none."""
    return dict(json.loads(TABLE.read_text())) if TABLE.exists() else {}


@cache
def name_of(path: Path) -> str:
    """A file as the table calls it."""
    return Path(os.path.relpath(path, ROOT)).as_posix()


def function_of(test: str) -> str:
    """A test's id without its parameters."""
    return test.partition("[")[0]


def processor_s() -> float:
    """Seconds of processor time that this process has had, with those of children that have ended."""
    return sum(os.times()[:4])


class Limit:
    """Skips the tests whose turn comes too late."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._end = time.monotonic() + 60.0 * minutes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip(f"its turn did not come within {self.minutes:g} minutes")


class Meter:
    """Says in each report what processor time it took, and skips the rest of a file that has had `most_s` seconds."""

    def __init__(self, most_s: float) -> None:
        self.most_s = most_s
        self.files: dict[Path, float] = defaultdict(float)
        self._since = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._since = processor_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.files[item.path] > self.most_s:
            pytest.skip(f"not quick: its file has had {self.most_s:g} seconds")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        since, self._since = self._since, processor_s()
        report.user_properties.append((TOOK, self._since - since))
        self.files[item.path] += self._since - since
        return report


class Clock:
    """Adds up what reports say, and writes it down at the end."""

    def __init__(self) -> None:
        self.files: dict[str, float] = defaultdict(float)
        self.functions: dict[str, float] = {}
        self.skipping: set[str] = set()
        """Files of which a test was skipped: they may take longer elsewhere."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = dict(report.user_properties).get(TOOK, 0.0)  # a process that died says nothing of its last test
        assert isinstance(took, float)
        file = report.nodeid.partition("::")[0]
        self.files[file] += took
        if report.when == "call":
            self.functions.setdefault(function_of(report.nodeid), took)
        if report.skipped:
            self.skipping.add(file)

    def pytest_sessionfinish(self) -> None:
        known = kept()
        took = {**self.files, **{test: seconds for test, seconds in self.functions.items() if seconds >= KEPT_S}}
        for name, seconds in known.items():
            file = name.partition("::")[0]
            if file in self.skipping or file not in self.files:
                took[name] = max(took.get(name, 0.0), seconds)
        table = {name: seconds for name, seconds in took.items() if (ROOT / name.partition("::")[0]).exists()}
        text = json.dumps({name: round(seconds, 1) for name, seconds in sorted(table.items())}, indent=1)
        TABLE.write_text(text + "\n")
