"""A change of the sources that some test should notice."""

from __future__ import annotations

import difflib
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.operators import Change, changes, compiles, drafts
from tests.pace import UNKNOWN_S, kept

SOURCES = ("tilewright", "compiler", "service", "worker", "migrations", "bench")
SUFFIXES = (".py", ".c", ".h", ".cu", ".cuh")
IMPORTED = re.compile(r"^(?:import ([\w.]+)|from ([\w.]+) import (\([^)]*\)|.*))", re.MULTILINE)
"""The module of an import, or the one from which names are, and these."""


class Stale(Exception):
    """A mutant of the list no longer says what is to be changed."""


@dataclass(frozen=True)
class Wanted:
    """A mutant of the list.

    A text that is in the sources once, what takes its place, and the tests that should notice, as pytest names them.

    file  where it was when the mutant was written down; where it is no more, the one file is taken in which the text is
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def found(self, root: Path) -> Mutant:
        """The mutant in a tree. Raises Stale where the text is not found, or not once."""
        text = _read(root / self.file)
        if text.count(self.old) == 1:
            return self._in(self.file, text)
        places = [(path, count) for path in sources(root) if (count := _read(root / path).count(self.old))]
        if [count for _, count in places] != [1]:
            where = ", ".join(f"{count} times in {path}" for path, count in places) or "nowhere"
            raise Stale(f"mutant {self.name}: its text is {where}; it was in {self.file}:\n{self.old}")
        ((path, _),) = places
        return self._in(path, _read(root / path))

    def _in(self, file: str, text: str) -> Mutant:
        at = text.index(self.old)
        return Mutant(self.name, file, text, text.replace(self.old, self.new), 1 + text.count("\n", 0, at), self.tests)


@dataclass(frozen=True)
class Mutant:
    """A file before and after, the line of the change, and what tests should notice it."""

    name: str
    file: str
    before: str
    after: str
    line: int
    tests: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def diff(self) -> str:
        """In the form of `diff -u`, with one line around the change."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, self.file, self.file, n=1))


def sources(root: Path) -> list[str]:
    """All files of a tree that may be changed, relative to it."""
    return sorted(
        path.relative_to(root).as_posix()
        for package in SOURCES
        for path in (root / package).rglob("*")
        if path.suffix in SUFFIXES
    )


def of_room(root: Path, room: str, tests: Sequence[str]) -> list[Mutant]:
    """Every mutant of the Python sources below a folder, or of one file, of a tree.

    Raises FileNotFoundError where there is none.
    """
    files = [file for file in sources(root) if file.endswith(".py") and (file == room or file.startswith(f"{room}/"))]
    if not files:
        raise FileNotFoundError(f"there is no source in {room}")
    found = []
    for file in files:
        text = (root / file).read_text()
        for change in changes(text):
            line = 1 + text.count("\n", 0, change.begin)
            found.append(Mutant(change.about, file, text, change.applied(text), line, tuple(tests)))
    return found


def mirror_of(root: Path, room: str) -> str:
    """The tests of a room: the tree of tests mirrors that of sources. Raises FileNotFoundError where it does not."""
    path = Path(room)
    mirrored = Path("tests") / (path.with_name(f"test_{path.name}") if path.suffix else path)
    if not (root / mirrored).exists():
        raise FileNotFoundError(f"there is no {mirrored}: name the tests of {room} with --tests")
    return mirrored.as_posix()


def of_all(root: Path, seed: int, begin: int, count: int) -> list[Mutant]:
    """Numbers `begin` to `begin + count` of the sample of all Python sources that a seed gives.

    Files are drawn in proportion to their lines, and a change in each. A number is the same whatever the others are.
    """
    texts = {file: (root / file).read_text() for file in sources(root) if file.endswith(".py")}
    files, lines = [*texts], [text.count("\n") for text in texts.values()]
    drawn, known, found = random.Random(seed), dict[str, list[Change]](), dict[tuple[str, str], Mutant]()
    while len(found) < begin + count:
        (file,) = drawn.choices(files, lines)
        text = texts[file]
        each = known[file] = known.get(file) or drafts(text)
        if not each or not compiles((change := drawn.choice(each)).applied(text)):
            continue
        line = 1 + text.count("\n", 0, change.begin)
        one = Mutant(change.about, file, text, change.applied(text), line, tests_near(root, file))
        found.setdefault((file, one.after), one)
    return [*found.values()][begin:]


def tests_near(root: Path, file: str) -> tuple[str, ...]:
    """Tests of a source: its own, those that import it, the shortest first, and those of its room.

    These are all that lie in the mirrored folder, or the nearest above with any.
    """
    folder = root / "tests" / Path(file).parent
    while not (found := sorted(folder.glob("test_*.py"))) and folder != root:
        folder = folder.parent
    own, below = folder / f"test_{Path(file).name}", folder / Path(file).stem
    room = [path.relative_to(root).as_posix() for path in (*found, *([below] if below.is_dir() else []))]
    seconds = kept()
    using = sorted(importers(root).get(file, ()), key=lambda test: (seconds.get(test, UNKNOWN_S), test))
    first = [own.relative_to(root).as_posix()] if own in found else []
    return tuple(dict.fromkeys([*first, *using, *room]))


@cache
def importers(root: Path) -> Mapping[str, frozenset[str]]:
    """Which test files import each file of the sources by its name, by path."""
    known = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in sources(root)}
    using: dict[str, set[str]] = defaultdict(set)
    for path in (root / "tests").rglob("test_*.py"):
        for whole, module, names in IMPORTED.findall(path.read_text()):
            listed = [f"{module}.{name.split()[0]}" for name in re.sub(r"[()]", "", names).split(",") if name.split()]
            for name in (whole, module, *listed):
                if name in known:
                    using[known[name]].add(path.relative_to(root).as_posix())
    return {file: frozenset(tests) for file, tests in using.items()}


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""
