"""`make mutants`: changes that tests should notice are made one by one, and the tests that should notice each are run.

make mutants                                          the list of `fixed`, every one of which must be noticed
make mutants ARGS='--only seccomp --only races'       those of the list whose names hold one of these words
make mutants ARGS='--room compiler/fuse --seed 7'     a sample of all changes that may be made in a room, run by its
                                                      tests
make mutants ARGS='--all --seed 7 --from 40'          a slice of a sample of all sources, run by what `make test` has
                                                      of each one's room, and by tests that import it
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.fixed import FIXED
from tests.mutants.mutant import Mutant, Stale, mirror_of, of_all, of_room
from tests.mutants.tree import Fate, Tree, Unfit

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 1 when one of the list survived, or is no longer found in the sources; 2 when tests say nothing.

    Survivors of a sample do not fail: some changes change no result. They are to be looked at.
    """
    parser = argparse.ArgumentParser(prog="make mutants", description="Changes that tests should notice.")
    parser.add_argument("--only", action="append", default=[], help="of the list, those whose name holds this")
    parser.add_argument("--room", help="a folder or file of the sources: a random sample of it instead of the list")
    parser.add_argument("--all", action="store_true", help="a random sample of all Python sources instead of the list")
    parser.add_argument("--from", type=int, default=0, dest="begin", help="with --all: the number of the first")
    parser.add_argument("--tests", action="append", default=[], help="of that room (default: the same path in tests)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--count", type=int, default=20, help="how many there are in the sample")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds that tests may take")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="with --all: in which tests begin, the shortest first"
    )
    parser.add_argument("--json", action="store_true", help="print what became of each as JSON")
    chosen = parser.parse_args(arguments)
    stale: list[str] = []
    try:
        if chosen.all:
            mutants = of_all(ROOT, chosen.seed, chosen.begin, chosen.count)
        elif chosen.room:
            mutants = sampled(chosen.room.rstrip("/"), chosen.tests, chosen.seed, chosen.count)
        else:
            mutants, stale = listed(chosen.only)
    except FileNotFoundError as reason:
        print(reason, file=sys.stderr)
        return 2
    choice = ("-m", "not exhaustive", "--minutes", str(chosen.minutes)) if chosen.all else ()
    fates = judged(mutants, chosen.timeout, choice)
    print(as_json(fates, stale) if chosen.json else as_text(fates, stale))
    ends = {fate for _, fate in fates}
    if stale or (Fate.SURVIVED in ends and not chosen.room and not chosen.all):
        return 1
    return 2 if Fate.UNJUDGED in ends else 0


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


def judged(mutants: Sequence[Mutant], timeout_s: float, choice: tuple[str, ...] = ()) -> list[tuple[Mutant, Fate]]:
    """What became of each, in a copy of the checkout."""
    fates: list[tuple[Mutant, Fate]] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tw-mutants-") as folder:
        tree = Tree.copied(ROOT, Path(folder), timeout_s, choice)
        for number, mutant in enumerate(mutants, 1):
            try:
                fates.append((mutant, tree.fate(mutant)))
            except Unfit as reason:
                _say(str(reason))
                fates.append((mutant, Fate.UNJUDGED))
            reported = f"{number} of {len(mutants)}, {time.monotonic() - begin:.0f} s"
            _say(f"{reported}: {fates[-1][1]}: {mutant.name} at {mutant.where}")
    return fates


def as_text(fates: Sequence[tuple[Mutant, Fate]], stale: Sequence[str]) -> str:
    """The survivors with what was changed, those of the list that are not found, and how many there were."""
    reported = [
        f"{fate}: {one.name} at {one.where}, run by {' '.join(one.tests)}\n{one.diff}"
        for one, fate in fates
        if fate in (Fate.SURVIVED, Fate.UNJUDGED)
    ]
    ends = Counter(fate for _, fate in fates)
    counted = f"{ends[Fate.NOTICED] + ends[Fate.TIMED_OUT]} of {len(fates)} noticed, {len(stale)} not found"
    unjudged = [f"{ends[Fate.UNJUDGED]} not judged"] if ends[Fate.UNJUDGED] else []
    return "\n".join([*reported, *stale, ", ".join([counted, *unjudged])])


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
