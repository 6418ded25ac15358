"""`make fuzz ARGS='--seconds 600 --seed 7'`: random models for a time, each compiled, run and judged.

What ends as anything but a right artifact that preflight promised, or a refusal that is the caller's, is printed with
its number and kept as a file, with the smallest part that fails so beside it where it fails in compiling. `--only KIND
NUMBER` judges one again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.judge import KINDS, MOST_BYTES, Outcome, asked, judged

KEPT = Path("build/fuzz")
EVERY_S = 30.0
APART = 1_000_000
"""Models from one seed to the next."""
SHARES = ("graph", "neighbour", "neighbour", "mutant", "neighbour", "mutant", "graph", "broken")
"""Kinds in turn."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0; 1 when a model did not end soundly."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no model after so long (default: 60)")
    parser.add_argument("--models", type=int, help="so many models, however long they take")
    parser.add_argument("--seed", type=int, default=0, help="which models (default: 0)")
    parser.add_argument("--kind", choices=[*KINDS], help="of this kind alone")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "NUMBER"), help="one model, by what was printed of it")
    parser.add_argument("--kept", type=Path, default=KEPT, help=f"where models are kept (default: {KEPT})")
    parser.add_argument(
        "--minimise", type=float, default=60.0, metavar="SECONDS", help="for each that is kept (default: 60; 0: not)"
    )
    given = parser.parse_args(arguments)
    if given.only:
        kind, number = given.only
        return 0 if judge(kind, int(number), given.kept, given.minimise, loud=True).is_sound else 1
    ends: Counter[str] = Counter()
    unsound, begin, said = 0, time.monotonic(), time.monotonic()
    for number in itertools.count(given.seed * APART):
        now = time.monotonic()
        if now - begin > given.seconds if given.models is None else sum(ends.values()) >= given.models:
            break
        if now - said > EVERY_S:
            said = now
            print(f"... {sum(ends.values())} models, {unsound} unsound", file=sys.stderr, flush=True)
        kind = given.kind or SHARES[number % len(SHARES)]
        end = judge(kind, number, given.kept, given.minimise)
        ends[f"{kind} {end.code}"] += 1
        unsound += not end.is_sound
    print(f"seed {given.seed}: {sum(ends.values())} models, {unsound} unsound; {dict(sorted(ends.items()))}")
    return 1 if unsound else 0


def judge(kind: str, number: int, kept: Path, seconds: float = 0.0, *, loud: bool = False) -> Outcome:
    """The outcome of one model, which is printed, kept, and minimised for so many seconds where it is unsound."""
    subject = KINDS[kind](number)
    end = judged(subject, number)
    if not end.is_sound or loud:
        kept.mkdir(parents=True, exist_ok=True)
        file = kept / f"{kind}-{number}.onnx"
        file.write_bytes(subject.model)
        file.with_suffix(".json").write_text(json.dumps(asked(subject, number)))
        reported = "" if end.foretold in (end.code, "") else f" (preflight said {end.foretold})"
        print(f"{kind} {number} ({subject.seed}): {end.code} {end.fault}{reported} {end.message} -> {file}", flush=True)
        if not end.is_sound and seconds:
            print(minimised(file, seconds), flush=True)
    return end


def minimised(file: Path, seconds: float) -> str:
    """Writes the smallest part of a kept model found in so many seconds that fails to compile as it does, beside it.

    What `compiler.minimise` says of it: of a model that compiles, and whose artifact is wrong, that there is none. It
    has the address space that `judged` gives.
    """
    command = [sys.executable, "-m", "compiler.minimise", str(file), "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--options", file.with_suffix(".json").read_text()],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
    )
    return (done.stdout or f"not minimised: {done.stderr}").strip()


if __name__ == "__main__":
    sys.exit(main())
