"""The tool that looks for what tests do not notice.

Its operators, its list, and that it tells one fate from another.
"""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import __main__ as tool
from tests.mutants.fixed import FIXED
from tests.mutants.mutant import Mutant, Stale, Wanted, mirror_of, of_all, of_room, sources
from tests.mutants.operators import changes
from tests.mutants.tree import Fate, Tree, Unfit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("wanted", FIXED, ids=lambda one: one.name)
def test_each_mutant_of_the_list_is_found_and_so_are_its_tests(wanted: Wanted) -> None:
    """Who changes such a place writes its mutant anew."""
    mutant = wanted.found(ROOT)
    assert mutant.after != mutant.before
    if mutant.file.endswith(".py"):
        ast.parse(mutant.after)
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert (f"def {function}(" if function else "def test_") in (ROOT / file).read_text()


def test_mutants_of_the_list_have_names_of_their_own() -> None:
    assert len({one.name for one in FIXED}) == len(FIXED)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a == b", ["a != b"]),
        ("a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("a in b", ["a not in b"]),
        ("a not in b", ["a in b"]),
        ("a is not b", ["a is b"]),
        ("(a  # < is meant\n < (b))", ["(a  # < is meant\n <= (b))"]),
        ("all(a)", ["any(a)"]),
        ("any(a)", ["all(a)"]),
        ("f(all)", []),
        ("a and b or c", ["a or b or c", "a and b and c"]),
        ("not a", ["bool(a)"]),
        ("x = 3", ["x = 4"]),
        ("x = True", []),
        ("a - b", ["a + b"]),
        ("'a' + b", []),
        ("x: Literal[1] = y", []),
        ("def f(a: int = 1) -> int:\n    '''It's a + b.'''\n    return a", None),
        ("if a:\n    raise E", ["if (not (a)):\n    raise E", "if a:\n    pass"]),
        ("'ä' < x", ["'ä' <= x"]),
    ],
)
def test_changes_of_a_source(source: str, expected: list[str] | None) -> None:
    found = [change.applied(source) for change in changes(source)]
    if expected is None:
        expected = [
            "def f(a: int = 2) -> int:\n    '''It's a + b.'''\n    return a",
            "def f(a: int = 1) -> int:\n    '''It's a + b.'''\n    pass",
        ]
    assert found == expected


def test_every_change_of_our_own_sources_compiles_and_changes_its_place_alone() -> None:
    text = (ROOT / "compiler/fuse/fuse.py").read_text()
    found = changes(text)
    assert len(found) > 50
    for change in found:
        after = change.applied(text)
        assert after != text
        assert after[: change.begin] == text[: change.begin]
        assert after.endswith(text[change.end :])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one function, and tests that notice little of what happens to it."""
    root = tmp_path / "checkout"
    (root / "compiler/room").mkdir(parents=True)
    (root / "tests/compiler/room").mkdir(parents=True)
    (root / "compiler/room/sign.py").write_text(
        "def sign(x: int) -> int:\n    if x < 0:\n        return -1\n    return 1\n"
    )
    (root / "tests/compiler/room/test_sign.py").write_text(
        "import sys\nsys.path.insert(0, '.')\nfrom compiler.room.sign import sign\n"
        "def test_sign():\n    assert (sign(-3), sign(2)) == (-1, 1)\n"
        "def test_that_fails():\n    assert sign(0) == 0\n"
        "import pytest\n@pytest.mark.slow\ndef test_slow():\n    assert sign(-3) == -1\n"
    )
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -ra\nmarkers = slow\n")
    (root / ".gitignore").write_text("*.log\n")
    (root / "ignored.log").write_text("")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer to start than these tests
    return root


PASSING = "tests/compiler/room/test_sign.py::test_sign"
FAILING = "tests/compiler/room/test_sign.py::test_that_fails"
SLOW = "tests/compiler/room/test_sign.py::test_slow"


def mutant(root: Path, old: str, new: str, tests: str = PASSING) -> Mutant:
    return Wanted("m", "compiler/room/sign.py", old, new, (tests,)).found(root)


def test_what_tests_notice_and_what_they_do_not(checkout: Path, tmp_path: Path) -> None:
    tree = Tree.copied(checkout, tmp_path / "copy")
    assert not (tree.root / "ignored.log").exists()
    before = (tree.root / "compiler/room/sign.py").read_text()
    assert tree.fate(mutant(checkout, "return -1", "return 1")) is Fate.NOTICED
    assert tree.fate(mutant(checkout, "x < 0", "x <= 0")) is Fate.SURVIVED
    assert tree.fate(mutant(checkout, "def sign", "def other")) is Fate.NOTICED  # it cannot be imported
    assert (tree.root / "compiler/room/sign.py").read_text() == before
    for unfit in (FAILING, f"{PASSING}_of_nothing"):
        with pytest.raises(Unfit, match="does not pass"):
            tree.fate(mutant(checkout, "return -1", "return 1", unfit))
    shorter = Tree(tree.root, choice=("-m", "not slow"))
    assert shorter.fate(mutant(checkout, "return -1", "return 1", SLOW)) is Fate.SURVIVED
    assert shorter.fate(replace(mutant(checkout, "return -1", "return 1"), tests=(SLOW, PASSING))) is Fate.NOTICED
    (tree.root / "conftest.py").write_text(
        "def pytest_collection_modifyitems(items):\n    if len(items) == 1:\n        items[0].add_marker('slow')\n"
    )
    assert shorter.fate(mutant(checkout, "return -1", "return 1", PASSING.partition("::")[0])) is Fate.NOTICED


def test_a_mutant_that_hangs_its_tests_is_noticed(checkout: Path, tmp_path: Path) -> None:
    tree = Tree.copied(checkout, tmp_path / "copy", timeout_s=3.0)
    assert (
        tree.fate(mutant(checkout, "    if x < 0:", "    while True:\n        pass\n    if x < 0:")) is Fate.TIMED_OUT
    )


def test_a_text_is_found_where_it_was_moved_and_must_be_there_once(checkout: Path) -> None:
    wanted = Wanted("m", "compiler/gone.py", "x < 0", "x <= 0", (PASSING,))
    found = wanted.found(checkout)
    assert (found.where, found.file) == ("compiler/room/sign.py:2", "compiler/room/sign.py")
    assert "-    if x < 0:\n+    if x <= 0:\n" in found.diff
    (checkout / "compiler/room/twin.py").write_text("x < 0\n")
    with pytest.raises(Stale, match=r"1 times in compiler/room/sign\.py, 1 times in compiler/room/twin\.py"):
        wanted.found(checkout)
    with pytest.raises(Stale, match=r"its text is nowhere; it was in compiler/gone\.py"):
        Wanted("m", "compiler/gone.py", "y < 0", "y <= 0", (PASSING,)).found(checkout)


def test_a_sample_is_that_of_its_seed_and_run_by_the_tests_of_its_room(checkout: Path) -> None:
    assert sources(checkout) == ["compiler/room/sign.py"]
    whole = of_room(checkout, "compiler/room", [PASSING])
    assert len({one.after for one in whole}) == len(whole) > 4
    one, again, other = (tool.sampled("compiler/room", [], seed, 3, checkout) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert {test for each in one for test in each.tests} == {"tests/compiler/room"}
    assert mirror_of(checkout, "compiler/room/sign.py") == "tests/compiler/room/test_sign.py"
    assert len(tool.sampled("compiler/room/sign.py", [PASSING], 0, 99, checkout)) == len(whole)
    for room, reason in (("compiler/other", "no tests/compiler/other"), ("compiler/room/x.py", "no tests/")):
        with pytest.raises(FileNotFoundError, match=reason):
            tool.sampled(room, [], 0, 3, checkout)
    with pytest.raises(FileNotFoundError, match="no source in compiler/other"):
        tool.sampled("compiler/other", [PASSING], 0, 3, checkout)


def test_a_sample_of_all_is_drawn_by_lines_and_can_be_taken_in_slices(checkout: Path) -> None:
    (checkout / "worker").mkdir()
    (checkout / "worker/long.py").write_text("x = 1\n" * 36)
    (checkout / "worker/empty.py").write_text("")
    (checkout / "tests/test_all.py").write_text("")
    whole = of_all(checkout, 5, 0, 30)
    assert [*of_all(checkout, 5, 0, 12), *of_all(checkout, 5, 12, 18)] == whole
    assert of_all(checkout, 6, 0, 30) != whole
    assert len({(one.file, one.after) for one in whole}) == 30
    assert {one.file: one.tests for one in whole} == {
        "worker/long.py": ("tests/test_all.py",),
        "compiler/room/sign.py": ("tests/compiler/room/test_sign.py",),
    }
    assert sum(one.file == "worker/long.py" for one in whole) > 20  # 36 of 40 lines, but its mutants are 36 as well


def test_the_exit_status_says_what_became_of_the_list(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noticed = Wanted("noticed", "compiler/room/sign.py", "return -1", "return 1", (PASSING,))
    survivor = Wanted("survivor", "compiler/room/sign.py", "x < 0", "x <= 0", (PASSING,))
    gone = Wanted("gone", "compiler/room/sign.py", "no such text", "", (PASSING,))
    monkeypatch.setattr(tool, "ROOT", checkout)
    monkeypatch.setattr(tool.listed, "__defaults__", (checkout,))
    expected = {(noticed,): 0, (noticed, survivor): 1, (gone,): 1, (noticed, gone): 1}
    for listed, status in expected.items():
        monkeypatch.setattr(tool, "FIXED", listed)
        assert tool.main(["--json"]) == status
        reported = json.loads(capsys.readouterr().out)
        assert [one["fate"] for one in reported["mutants"]] == [
            "noticed" if one is noticed else "survived" for one in listed if one is not gone
        ]
        assert len(reported["not_found"]) == listed.count(gone)
    monkeypatch.setattr(tool, "FIXED", (noticed, survivor))
    assert tool.main(["--only", "notic"]) == 0
    assert tool.main([]) == 1
    told_as_text = capsys.readouterr().out
    assert "survived: survivor at compiler/room/sign.py:2, run by" in told_as_text
    assert "1 of 2 noticed, 0 not found" in told_as_text
    failing = Wanted("f", "compiler/room/sign.py", "x < 0", "x > 0", (FAILING,))
    monkeypatch.setattr(tool, "FIXED", (failing, noticed))
    capsys.readouterr()
    assert tool.main([]) == 2
    assert "1 of 2 noticed, 0 not found, 1 not judged" in capsys.readouterr().out


def test_names_of_the_list_can_be_chosen_by_a_word() -> None:
    mutants, stale = tool.listed(["seccomp", "is_plausible"])
    assert {one.name.partition(":")[0] for one in mutants} == {"seccomp", "is_plausible"}
    assert not stale
    assert len(tool.listed([])[0]) == len(FIXED)
