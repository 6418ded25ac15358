"""`make mutants`: changes that tests should notice are made one by one, and the tests that should notice each are run.

make mutants                                          the list of `fixed`, every one of which must be noticed
make mutants ARGS='--only seccomp --only races'       those of the list whose names hold one of these words
make mutants ARGS='--room compiler/fuse --seed 7'     a sample of all changes that may be made in a room, run by its
                                                      tests
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.fixed import FIXED
from tests.mutants.mutant import Mutant, Stale, mirror_of, of_room
from tests.mutants.tree import Fate, Tree, Unfit

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 1 when one of the list survived, or is no longer found in the sources; 2 when tests say nothing.

    Survivors of a sample do not fail: some changes change no result. They are to be looked at.
    """
    parser = argparse.ArgumentParser(prog="make mutants", description="Changes that tests should notice.")
    parser.add_argument("--only", action="append", default=[], help="of the list, those whose name holds this")
    parser.add_argument("--room", help="a folder or file of the sources: a random sample of it instead of the list")
    parser.add_argument("--tests", action="append", default=[], help="of that room (default: the same path in tests)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--count", type=int, default=20, help="how many there are in the sample")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds that tests may take")
    parser.add_argument("--json", action="store_true", help="print what became of each as JSON")
    chosen = parser.parse_args(arguments)
    stale: list[str] = []
    try:
        if chosen.room:
            mutants = sampled(chosen.room.rstrip("/"), chosen.tests, chosen.seed, chosen.count)
        else:
            mutants, stale = listed(chosen.only)
        fates = judged(mutants, chosen.timeout)
    except (FileNotFoundError, Unfit) as reason:
        print(reason, file=sys.stderr)
        return 2
    print(as_json(fates, stale) if chosen.json else as_text(fates, stale))
    survived = [one for one, fate in fates if fate is Fate.SURVIVED]
    return 1 if stale or (survived and not chosen.room) else 0


def listed(words: Sequence[str], root: Path = ROOT) -> tuple[list[Mutant], list[str]]:
    """Mutants of the list, all or those whose names hold one of the words, and why others are no longer there."""
    mutants, stale = [], []
    for wanted in FIXED:
        if not words or any(word in wanted.name for word in words):
            try:
                mutants.append(wanted.found(root))
            except Stale as reason:
                stale.append(str(reason))
    return mutants, stale


def sampled(room: str, tests: Sequence[str], seed: int, count: int, root: Path = ROOT) -> list[Mutant]:
    """Some of all mutants of a room, in the order of the sources.

    Raises FileNotFoundError for a room without sources or tests.
    """
    mutants = of_room(root, room, tests or [mirror_of(root, room)])
    at = random.Random(seed).sample(range(len(mutants)), min(count, len(mutants)))
    return [mutants[one] for one in sorted(at)]


def judged(mutants: Sequence[Mutant], timeout_s: float) -> list[tuple[Mutant, Fate]]:
    """What became of each, in a copy of the checkout. Raises Unfit when tests fail already without a mutant."""
    fates: list[tuple[Mutant, Fate]] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tw-mutants-") as folder:
        tree = Tree.copied(ROOT, Path(folder), timeout_s)
        for tests in dict.fromkeys(mutant.tests for mutant in mutants):
            _say(f"without a mutant: {' '.join(tests)}")
            tree.check(tests)
        for number, mutant in enumerate(mutants, 1):
            fates.append((mutant, tree.fate(mutant)))
            reported = f"{number} of {len(mutants)}, {time.monotonic() - begin:.0f} s"
            _say(f"{reported}: {fates[-1][1]}: {mutant.name} at {mutant.where}")
    return fates


def as_text(fates: Sequence[tuple[Mutant, Fate]], stale: Sequence[str]) -> str:
    """The survivors with what was changed, those of the list that are not found, and how many there were."""
    survived = [one for one, fate in fates if fate is Fate.SURVIVED]
    reported = [f"survived: {one.name} at {one.where}, run by {' '.join(one.tests)}\n{one.diff}" for one in survived]
    return "\n".join(
        [*reported, *stale, f"{len(fates) - len(survived)} of {len(fates)} noticed, {len(stale)} not found"]
    )


def as_json(fates: Sequence[tuple[Mutant, Fate]], stale: Sequence[str]) -> str:
    """The same for a program to read."""
    mutants = [
        {
            "name": one.name,
            "file": one.file,
            "line": one.line,
            "tests": list(one.tests),
            "fate": str(fate),
            "diff": one.diff,
        }
        for one, fate in fates
    ]
    return json.dumps({"mutants": mutants, "not_found": list(stale)}, indent=2)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
