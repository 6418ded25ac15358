"""What `make test` leaves out, and that it leaves out no file and no path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import exhaustive
from tests.pace import UNKNOWN_S, kept, name_of

ROOT = Path(__file__).parents[1]


def item(test: str, *marks: str) -> Any:
    marked = dict.fromkeys(marks, True)
    return SimpleNamespace(nodeid=test, path=ROOT / test.partition("::")[0], get_closest_marker=marked.get)


def left_out(seconds: dict[str, float], *items: Any) -> list[str]:
    return [item.nodeid for item in exhaustive.exhaustive(items, seconds)]


def test_a_short_file_is_run_whole_and_a_longer_or_unknown_one_with_the_first_sets_of_parameters() -> None:
    files = {"short.py": exhaustive.WHOLE_FILE_S, "longer.py": exhaustive.WHOLE_FILE_S + 0.1}
    tests = [f"{file}::{test}" for file in (*files, "unknown.py") for test in ("x[1]", "x[2]", "y")]
    assert left_out(files, *map(item, tests)) == ["longer.py::x[2]", "unknown.py::x[2]"]


def test_long_functions_are_left_out_but_where_a_path_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    long_s = exhaustive.LONG_S + 0.1
    seconds = {"a.py": 3.0, "a.py::x": long_s, "a.py::y": long_s}
    monkeypatch.setattr(exhaustive, "PATHS", {"a path": "a.py::y"})
    tests = [item(f"a.py::{name}") for name in ("x[1]", "y[1]", "y[2]", "z")]
    assert left_out(seconds, *tests) == ["a.py::x[1]", "a.py::y[2]"]


def test_of_a_file_of_long_functions_the_shortest_is_taken() -> None:
    seconds = {"a.py": 9.0, "a.py::x": 4.0, "a.py::y": 3.0, "a.py::z": 4.0}
    assert left_out(seconds, *[item(f"a.py::{name}") for name in "xyz"]) == ["a.py::x", "a.py::z"]


def test_of_a_file_that_is_tested_elsewhere_only_a_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "ELSEWHERE", {"a.py": "it needs a service of its own"})
    monkeypatch.setattr(exhaustive, "PATHS", {"a path": "a.py::y"})
    tests = [item(f"a.py::{name}") for name in ("x", "y[1]", "y[2]")]
    assert left_out({"a.py": 3.0}, *tests) == ["a.py::x", "a.py::y[2]"]


def test_the_first_set_of_parameters_that_is_not_marked_slow_is_taken() -> None:
    tests = (item("a.py::x[1]", "slow"), item("a.py::x[2]"), item("a.py::x[3]"), item("a.py::y", "exhaustive"))
    assert left_out({"a.py": 1.5}, *tests) == ["a.py::x[1]", "a.py::x[3]", "a.py::y"]


@pytest.fixture
def collected(pytestconfig: pytest.Config) -> Sequence[pytest.Item]:
    """What was found in this run, in whole files."""
    if any("::" in argument for argument in pytestconfig.args):
        pytest.skip("only parts of files were asked for")
    return pytestconfig.stash[exhaustive.COLLECTED]


def test_each_file_has_a_test_in_make_test_or_a_reason(collected: Sequence[pytest.Item]) -> None:
    chosen = {name_of(item.path) for item in collected if not item.get_closest_marker("exhaustive")}
    assert {name_of(item.path) for item in collected} - chosen <= set(exhaustive.ELSEWHERE)


@pytest.mark.parametrize("file", exhaustive.ELSEWHERE)
def test_a_reason_is_of_a_file_that_exists_and_takes_long(file: str) -> None:
    assert (ROOT / file).exists()
    assert kept().get(file, UNKNOWN_S) > exhaustive.WHOLE_FILE_S


@pytest.mark.parametrize("path", exhaustive.PATHS)
def test_each_path_is_gone_by_a_test_that_is_there(path: str) -> None:
    file, _, name = exhaustive.PATHS[path].partition("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text()
