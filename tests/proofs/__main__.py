"""`make prove-rules`: every rule shown by the solver, and every mistake found by it.

    python -m tests.proofs                 all rules, compared with what is kept of them
    python -m tests.proofs --only NAME     rules whose names have a word
    python -m tests.proofs --write         keep what was found

The exit status is 1 where a rule is refuted, has no proof where one is kept, or a mistake is not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.proofs.attempt import Refuted
from tests.proofs.catalogue import SUBJECTS
from tests.proofs.kept import LEVELS, NOT, State, kept, write
from tests.proofs.mistakes import MISTAKES, example_of
from tests.proofs.states import found


def main() -> int:
    """Proves what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description="rules proved by a solver")
    parser.add_argument("--only", default="", help="rules whose names have this in them")
    parser.add_argument("--write", action="store_true", help="keep what was found")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    asked = parser.parse_args()
    begun = time.monotonic()
    names = [name for name in SUBJECTS if asked.only in name]
    known = {} if asked.write else kept()
    wrong = 0

    def judged(name: str) -> State | Refuted:
        try:
            return found(SUBJECTS[name])
        except Refuted as error:
            return error

    states: dict[str, State] = {}
    with ThreadPoolExecutor(asked.jobs) as pool:
        for name, state in zip(names, pool.map(judged, names), strict=True):
            if isinstance(state, Refuted):
                wrong += 1
                print(f"{name}: REFUTED, {state}", flush=True)
                continue
            states[name] = state
            lost = name in known and LEVELS.index(state.level) > LEVELS.index(known[name].level)
            wrong += lost
            print(f"{name}: {state}{'; a proof is kept, and was not found' if lost else ''}", flush=True)
    for mistake in MISTAKES if not asked.only else ():
        example = example_of(mistake)
        wrong += example is None
        print(f"mistake in {mistake.rule}, {mistake.what}: {example or 'NOT FOUND'}", flush=True)
    if asked.write and not asked.only and not wrong:
        write(states, SUBJECTS)
    counts = Counter(state.level for state in states.values())
    print(", ".join(f"{counts[level]} {level}" for level in LEVELS), end="; ")
    proved = sum(state.level != NOT for state in states.values())
    print(f"{len(MISTAKES)} mistakes; {proved} of {len(names)} rules proved in {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
