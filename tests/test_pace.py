from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests import pace

ROOT = Path(__file__).parents[1]
QUICK = """
import ctypes, subprocess, pytest
from concurrent.futures import ThreadPoolExecutor

def test_that_starts_nothing():
    assert True

def test_that_starts_a_process():
    subprocess.run(["true"], check=True)

def test_whose_thread_starts_a_process_and_hides_errors():
    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(subprocess.run, ["true"]).result()
        except Exception:
            pass

def test_that_loads_a_compiler():
    ctypes.CDLL("libnvrtc.so.13")

@pytest.mark.slow
def test_that_is_slow():
    raise AssertionError
"""


def item(file: str, name: str) -> Any:
    return SimpleNamespace(path=ROOT / file, name=name)


def test_longest_files_come_first_unknown_ones_among_them_and_all_stay_whole() -> None:
    items = [item(file, name) for name in ("one", "two") for file in ("a.py", "b.py", "new.py", "c.py")]
    ordered = pace.longest_first(items, {"a.py": 1.0, "b.py": pace.UNKNOWN_S + 1, "c.py": 1.0})
    files = ["b.py", "new.py", "a.py", "c.py"]
    assert [(one.path.name, one.name) for one in ordered] == [(file, name) for file in files for name in ("one", "two")]
    last = pace.longest_first(items, {"a.py": 1.0, "b.py": pace.UNKNOWN_S + 1, "c.py": 1.0}, last=True)
    assert [one.path.name for one in last[::2]] == files[::-1]


@pytest.mark.parametrize(("minutes", "said"), [("10", "1 passed"), ("0", "1 skipped")])
def test_what_has_not_begun_in_time_is_skipped_and_says_so(minutes: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_it(): pass")
    own = [sys.executable, "-m", "pytest", "-p", "tests.pace", "-rs", "-c", "/dev/null", "--minutes", minutes]
    ran = subprocess.run([*own, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said in ran.stdout
    assert ("its turn did not come within 0 minutes" in ran.stdout) == (minutes == "0")


def test_quick_tests_start_no_process_and_load_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(QUICK)
    (tmp_path / "test_whole.py").write_text("import subprocess\nsubprocess.run(['true'])\ndef test_it(): pass")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.pace", "--quick", "-rs", "-c", "/dev/null", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed, 4 skipped, 1 deselected" in ran.stdout
    skipped = sorted(line.partition(" ")[2] for line in ran.stdout.splitlines() if line.startswith("SKIPPED"))
    assert [(line[:3], line.rpartition(": ")[2]) for line in skipped] == [
        ("[1]", "loads a compiler"),
        ("[3]", "starts a process"),
    ]


def test_long_files_are_no_part_of_quick_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "kept", lambda: {"tests/long.py": pace.QUICK_FILE_S + 1, "tests/short.py": 1.0})
    config: Any = SimpleNamespace(getoption=lambda name: True)
    found = [pace.pytest_ignore_collect(ROOT / "tests" / name, config) for name in ("long.py", "short.py", "new.py")]
    assert found == [True, None, None]


def test_the_rest_of_a_file_that_takes_too_long_is_not_quick() -> None:
    meter, item = pace.Meter(1.5), cast(pytest.Item, SimpleNamespace(path=ROOT / "tests" / "new.py"))
    meter.files[item.path] = 1.5
    meter.pytest_runtest_setup(item)
    meter.files[item.path] = 1.6
    with pytest.raises(pytest.skip.Exception, match=r"had 1\.5 seconds"):
        meter.pytest_runtest_setup(item)
    meter.pytest_runtest_setup(cast(pytest.Item, SimpleNamespace(path=ROOT / "tests" / "other.py")))


@pytest.mark.parametrize(
    "work", [lambda: sum(range(3_000_000)), lambda: subprocess.run([sys.executable, "-c", ""], check=True)]
)
def test_a_report_says_what_processor_time_a_test_took_with_its_children(work: Callable[[], object]) -> None:
    meter, item = pace.Meter(math.inf), cast(pytest.Item, SimpleNamespace(path=ROOT / "tests" / "new.py"))
    report: Any = SimpleNamespace(user_properties=[])
    meter.pytest_runtest_logstart()
    making = meter.pytest_runtest_makereport(item)
    next(making)
    work()
    with pytest.raises(StopIteration) as ended:
        making.send(report)
    assert ended.value.value is report
    assert dict(report.user_properties)[pace.TOOK] == meter.files[item.path] > 0


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A table of two files, of a long function in each, and of one that is gone."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setattr(pace, "ROOT", tmp_path)
    monkeypatch.setattr(pace, "TABLE", tmp_path / "seconds.json")
    pace.TABLE.write_text('{"a.py": 5.0, "a.py::old": 4.5, "b.py": 4.0, "b.py::y": 3.0, "gone.py": 3.0}')
    return pace.TABLE


def keep(*reports: tuple[str, str, float, bool]) -> None:
    """What these reports say (test, phase, seconds, whether it was skipped) goes into the table."""
    clock = pace.Clock()
    for test, when, seconds, skipped in reports:
        report: Any = SimpleNamespace(nodeid=test, when=when, user_properties=[(pace.TOOK, seconds)], skipped=skipped)
        clock.pytest_runtest_logreport(report)
    clock.pytest_sessionfinish()


def test_a_run_is_kept_beside_what_others_took(table: Path) -> None:
    keep(
        ("a.py::x[first]", "setup", 2.0, False),
        ("a.py::x[first]", "call", 1.0, False),
        ("a.py::x[second]", "call", 3.0, False),
        ("a.py::y", "call", 0.25, False),
    )
    assert json.loads(table.read_text()) == {"a.py": 6.2, "a.py::x": 1.0, "b.py": 4.0, "b.py::y": 3.0}


def test_a_file_of_which_a_test_was_skipped_takes_no_less_than_before(table: Path) -> None:
    keep(("a.py::x", "call", 1.0, False), ("a.py::old", "setup", 0.0, True), ("b.py::y", "call", 6.0, True))
    assert json.loads(table.read_text()) == {
        "a.py": 5.0,
        "a.py::old": 4.5,
        "a.py::x": 1.0,
        "b.py": 6.0,
        "b.py::y": 6.0,
    }


@pytest.mark.parametrize("option", ["quick", "markexpr", "keyword"])
def test_what_a_part_of_the_tests_took_is_not_kept(option: str) -> None:
    config: Any = SimpleNamespace(getoption=lambda name: name in ("keep_seconds", option))
    with pytest.raises(pytest.UsageError, match="left out"):
        pace.pytest_configure(config)


@pytest.mark.parametrize(("worker", "found"), [("gw0", ["a", "b"]), ("gw1", ["b", "a"]), ("gw2", ["a", "b"])])
def test_every_second_process_begins_at_the_other_end_of_a_folder(worker: str, found: list[str]) -> None:
    config: Any = SimpleNamespace(workerinput={"workerid": worker})
    folder = MagicMock(spec=pytest.Dir, config=config)
    finding = pace.pytest_make_collect_report(folder)
    next(finding)
    report = SimpleNamespace(result=["a", "b"])
    with pytest.raises(StopIteration) as ended:
        finding.send(report)  # type: ignore[arg-type]
    assert ended.value.value.result == found
