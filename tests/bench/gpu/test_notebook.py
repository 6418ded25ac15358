from __future__ import annotations

from pathlib import Path

from bench.gpu.notebook import Deadline, Notebook


def test_rows_are_found_again_while_the_sources_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "out" / "tests.json"
    Notebook(file, "a").put("mma", {"passed": True})
    Notebook(file, "a").put("wgmma", {"passed": False})
    assert Notebook(file, "a").rows == {"mma": {"passed": True}, "wgmma": {"passed": False}}
    assert Notebook(file, "b").rows == {}
    assert [path.name for path in file.parent.iterdir()] == ["tests.json"]


def test_a_file_that_is_no_notebook_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "tests.json"
    for text in ("{", "[]", '{"sources": "b", "rows": {"x": {}}}'):
        file.write_text(text)
        assert Notebook(file, "a").rows == {}


def test_a_deadline_never_has_less_than_nothing_left() -> None:
    assert Deadline.after(-5).left == 0.0
    assert 50 < Deadline.after(60).left <= 60
