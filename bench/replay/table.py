"""What is printed of a replay: the cases that differ, and each difference once, with all the cases that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.replay.cases import Case
from bench.replay.difference import Difference

LISTED = 6
"""Cases that are named for one difference."""
KINDS = ("failure", "kernel", "moved", "source", "plan", "bytes", "file", "manifest", "report", "versions")


@dataclass(frozen=True)
class Row:
    """One case: `error` is what both failed with alike, `skipped` why there was no model, `alone` if one side ran."""

    case: Case
    differences: Sequence[Difference] = ()
    error: str = ""
    skipped: str = ""
    alone: bool = False
    seconds: tuple[float, float] = field(default=(0.0, 0.0))

    @property
    def verdict(self) -> str:
        """One line for people."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        if self.differences:
            return f"differs: {counted(self.differences)}"
        if self.error:
            return f"fails{'' if self.alone else ' alike'}: {self.error.splitlines()[-1]}"
        return "compiled" if self.alone else "identical"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "case": str(self.case),
            "verdict": self.verdict,
            "differences": [vars(one) for one in self.differences],
            "error": self.error,
            "skipped": self.skipped,
            "seconds": list(self.seconds),
        }


def counted(differences: Iterable[Difference]) -> str:
    """`3 kernels, 1 plan`: names of kernels where there are few."""
    of = Counter(one.kind for one in differences)
    said = []
    for kind in KINDS:
        names = [one.name for one in differences if one.kind == kind]
        if of[kind]:
            said.append(f"{kind} {', '.join(names)}" if len(names) <= LISTED else f"{len(names)} of kind {kind}")
    return "; ".join(said)


def summary(rows: Sequence[Row], before: str, after: str) -> str:
    """The whole summary."""
    differing = [row for row in rows if row.differences]
    failing = [row for row in rows if row.error and not row.differences]
    skipped = [row for row in rows if row.skipped]
    same = len(rows) - len(differing) - len(failing) - len(skipped)
    lines = []
    for (kind, name, detail), cases in _grouped(differing):
        lines += [f"== {kind} {name}: {_listed(cases)}", *(f"   {line}" for line in detail.splitlines())]
    if differing:
        lines += ["", "Cases that differ:", *(f"   {row.case}: {row.verdict}" for row in differing)]
    if failing:
        lines += ["", "Cases that fail in the same words at both:"]
        lines += [f"   {row.case}: {row.error.splitlines()[-1]}" for row in failing]
    if skipped:
        lines += ["", "Skipped:", *(f"   {row.case}: {row.skipped}" for row in skipped)]
    if versions := _grouped_names(differing):
        lines += ["", f"Versions that differ: {versions}"]
    lines += [
        "",
        f"{before} and {after}, {len(rows)} cases: {same} identical, {len(differing)} differ, "
        f"{len(failing)} fail alike, {len(skipped)} skipped",
    ]
    return "\n".join(lines).lstrip("\n") + "\n"


def warmed(rows: Sequence[Row], before: str) -> str:
    """The summary where one side alone was compiled: what failed or was skipped, and the longest compilations."""
    failed = [row for row in rows if row.error or row.skipped]
    longest = sorted(rows, key=lambda row: -row.seconds[0])[:LISTED]
    lines = [*(f"{row.case}: {row.verdict}" for row in failed), "Longest:"]
    lines += [f"   {row.seconds[0]:8.1f} s  {row.case}" for row in longest]
    return "\n".join([*lines, f"{before}: {len(rows) - len(failed)} of {len(rows)} cases compiled"]) + "\n"


def _grouped(rows: Iterable[Row]) -> list[tuple[tuple[str, str, str], list[Case]]]:
    """Each difference but versions once, with the cases that have it; in the order of KINDS."""
    found: dict[tuple[str, str, str], list[Case]] = {}
    for row in rows:
        for one in row.differences:
            if one.kind != "versions":
                found.setdefault((one.kind, one.name, one.detail), []).append(row.case)
    return sorted(found.items(), key=lambda item: KINDS.index(item[0][0]))


def _grouped_names(rows: Iterable[Row]) -> str:
    changed = {f"{one.name} {one.detail}" for row in rows for one in row.differences if one.kind == "versions"}
    return "; ".join(sorted(changed))


def _listed(cases: Sequence[Case]) -> str:
    named = "; ".join(map(str, cases[:LISTED]))
    return named + (f"; and {len(cases) - LISTED} more" if len(cases) > LISTED else "")
