"""The limits of `tests/sizes.py`: what counts as a parameter, what is named, and when the page's table is wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import sizes

SIX = "a, b, c, d, e, f"


def count(head: str, method: bool = False) -> int:
    """Parameters of a function with such a head."""
    function = ast.parse(f"{head}: ...").body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return sizes.parameters(function, method)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("def f()", 0),
        (f"def f({SIX}, g=1)", 7),
        (f"async def f({SIX}, /, g)", 7),
        (f"def f({SIX}, *, named)", 7),
        (f"def f({SIX}, *, named=None)", 6),
        (f"def f({SIX}, *more, **named)", 6),
    ],
)
def test_parameters_count_unless_a_call_can_only_name_them_and_may_leave_them_out(head: str, expected: int) -> None:
    assert count(head) == expected


def test_self_is_no_parameter_and_that_of_a_static_method_is_one() -> None:
    assert count("def f(self, a)", method=True) == 1
    assert sizes.parameters(ast.parse("@staticmethod\ndef f(a, b): ...").body[0], True) == 2  # type: ignore[arg-type]


def test_functions_are_named_with_what_they_stand_in() -> None:
    text = "class A:\n    def f(self, a):\n        def g(b, c): ...\nif 1:\n    def h(): ...\n"
    assert [*sizes.functions(text)] == [("A.f", 1), ("A.f.g", 2), ("h", 0)]


def test_a_row_may_be_wrong_by_a_twentieth() -> None:
    assert sizes.stale({"a": 1000}, {"a": 1050}) == []
    assert sizes.stale({"a": 1000}, {"a": 940}) == ["architecture.md: `a` has 940 lines there and 1,000 in truth"]
    assert sizes.stale({}, {"a": 940}) == ["architecture.md: `a` has 940 lines there and 0 in truth"]


def test_a_room_that_has_grown_needs_a_row() -> None:
    assert sizes.stale({"a/b": sizes.LISTED + 10}, {}) == []
    assert sizes.stale({"a/b": 2 * sizes.LISTED}, {}) == ["architecture.md: `a/b` has no row"]


def test_what_is_written_is_what_is_read_back() -> None:
    rows = {"a": 12345, "a/b": 6789}
    page = f"before\n{sizes.BEGIN}\nold\n{sizes.END}\nafter\n"
    written = sizes.written(page, rows)
    assert sizes.kept(written) == rows
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "old" not in written


def test_what_is_too_large_needs_a_reason_and_a_reason_needs_something_large() -> None:
    assert sizes.unequal("too long", ["a"], {"a": "one format"}) == []
    assert sizes.unequal("too long", ["a"], {}) == ["a: too long, and no reason in sizes.py"]
    assert sizes.unequal("too long", [], {"a": "one format"}) == ["a: has a reason and needs none"]


def test_no_limit_is_broken_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert sizes.main([]) == 0, capsys.readouterr().err
    assert " compiler\n" in capsys.readouterr().out


def test_a_file_and_a_function_that_are_too_large_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "bench"
    package.mkdir()
    (package / "long.py").write_text("x = 1\n" * (sizes.MAX_LINES + 1))
    (package / "wide.py").write_text(f"def f({SIX}, g, h): ...\n")
    for number in range(sizes.MAX_MODULES):
        (package / f"module_{number}.py").write_text("")
    monkeypatch.setattr(sizes, "ROOT", tmp_path)
    assert sizes.long_files() == ["bench/long.py"]
    assert sizes.many_parameters() == ["bench/wide.py::f"]
    assert sizes.large_folders() == ["bench"]
    assert len(sizes.problems({}, {})) > 3
