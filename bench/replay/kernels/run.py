"""`python -m bench replay REF --kernels`: kernels of drawn models at a commit and now."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from bench.drawn.layers import Model, models
from bench.replay.compiling import Kept, NotThatCompiler
from bench.replay.difference import diff
from bench.replay.kernels.lowering import Found
from bench.replay.kernels.texts import Generator, Texts, shards
from bench.replay.side import ROOT, at_commit, of_working_tree
from tilewright.errors import UsageError

NAMED = 20
"""Kernels that differ which are named."""
ONE_SIDE = "only before", "only after"


@dataclass(frozen=True)
class Row:
    """A kernel, or the proposals of a call, that differs: in which parts."""

    name: str
    algorithm: str
    parts: tuple[str, ...]


def run(given: argparse.Namespace, console: Console) -> int:
    """Exit status 0 when all kernels are the same, 1 when some differ. Raises `UsageError`."""
    drawn = list(_asked(given.only))
    if not drawn:
        raise UsageError(f"no drawn model has {' and '.join(given.only)}", fix="see --list")
    if given.list:
        print(*(f"{one.name} {target} {precision}" for one in drawn for target, precision in one.asked), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="replay-kernels-") as name, ThreadPoolExecutor(given.jobs) as pool:
        folder, kept = Path(name), Kept(given.cache)
        before = Generator.at(at_commit(given.ref, folder / "before", ROOT), given.ref, ROOT)
        place = folder / "after"
        tree = at_commit(given.to, place, ROOT) if given.to else of_working_tree(place, ROOT)
        sides = [before, *([] if given.warm else [Generator.at(tree, given.to, ROOT)])]
        if len({one.side.digest for one in sides}) < len(sides):
            console.print("The compiler is the same at both.")
        dealt = list(shards(drawn, given.jobs))
        waiting = [
            [pool.submit(side.texts, each, folder / f"{number}-{at}", kept) for at, each in enumerate(dealt)]
            for number, side in enumerate(sides)
        ]
        try:
            old, *new = [[one.result() for one in each] for each in waiting]
        except NotThatCompiler as error:
            raise UsageError(f"another compiler would have run: {error}", fix="look into PYTHONPATH") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if not new:
        print(counted([one for texts in old for one in texts.found.values()]))
        return 0
    rows = [row for pair in zip(old, new[0], strict=True) for row in differing(*pair)]
    print(summary(old, new[0], rows, [side.side.name for side in sides]), end="")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 1 if rows else 0


def _asked(only: Sequence[str]) -> Iterator[Model]:
    """The drawn models, for the targets alone whose line in --list has all of some words."""
    for one in models():
        asked = [each for each in one.asked if all(word in f"{one.name} {' '.join(each)}" for word in only)]
        if asked:
            yield replace(one, asked=tuple(asked))


def differing(old: Texts, new: Texts) -> Iterator[Row]:
    """What is not the same in two lists of kernels, in the order of the first."""
    for name in {**old.found, **new.found}:
        before, after = old.found.get(name), new.found.get(name)
        if before is None or after is None:
            one = before or after
            assert one is not None
            yield Row(name, one.algorithm, (ONE_SIDE[before is None],))
        elif before != after:
            parts = [part for part, digest in before.digests.items() if after.digests.get(part) != digest]
            yield Row(name, before.algorithm, tuple(parts))


def counted(found: Sequence[Found]) -> str:
    """How many kernels there are, and of how many algorithms."""
    kernels = [one for one in found if one.algorithm]
    algorithms, calls = len({one.algorithm for one in kernels}), len(found) - len(kernels)
    return f"{len(kernels):,} kernels of {algorithms} algorithms, and what is proposed for {calls:,} calls,"


def summary(old: Sequence[Texts], new: Sequence[Texts], rows: Sequence[Row], sides: Sequence[str]) -> str:
    """How many kernels differ, by algorithm; the first ones; and what differs in the text of the first."""
    lines = [f"{counted([one for texts in old for one in texts.found.values()])} at {sides[0]}"]
    if not rows:
        return f"{lines[0]}, the same in {sides[1]}\n"
    by = Counter((row.algorithm or "proposals", ", ".join(row.parts)) for row in rows)
    lines += [f"{count:6,} {algorithm}: {parts}" for (algorithm, parts), count in sorted(by.items())]
    lines += ["", *(f"{', '.join(row.parts)}: {row.name}" for row in rows[:NAMED])]
    lines += [f"({len(rows) - NAMED} more)"] if len(rows) > NAMED else []
    shown = next((row for row in rows if row.parts[0] not in ONE_SIDE), None)
    if shown is not None:
        before, after = (next(one for one in each if shown.name in one.found).text(shown.name) for each in (old, new))
        lines += ["", f"== {shown.name}", diff(before, after)]
    return "\n".join(lines) + "\n"
