"""Inner loops in the assembly text of an ARM compiler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LABEL = re.compile(r"^(\.L\w+):")
BRANCH = re.compile(r"^\s+(?:b\.?\w+|cbn?z|tbn?z)\s+(?:\S+,\s*)*(\.L\w+)\s*$")
INSTRUCTION = re.compile(r"^\s+([a-z][\w.]*)\b")
MULTIPLIES = {"fmla": 4, "fmls": 4, "fmul": 4, "sdot": 16, "udot": 16, "usdot": 16, "sudot": 16, "bfdot": 8}
"""Products that a vector instruction makes, by its name."""
WIDENING = {"smlal": 4, "smlal2": 4, "umlal": 4, "umlal2": 4}
"""The same of those for which a core has half as many units."""
LEAST_PRODUCTS = 48
LOADS = ("ldr", "ldp", "ldur", "ld1", "ld1r", "ld2", "ld3", "ld4")


@dataclass(frozen=True)
class Loop:
    """A loop that holds no other and no call: its lines from the label to the branch back."""

    lines: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """Instructions by name."""
        found = (INSTRUCTION.match(line) for line in self.lines)
        return Counter(match[1] for match in found if match)

    @property
    def instructions(self) -> int:
        """Instructions of one iteration."""
        return self.counts.total()

    @property
    def products(self) -> int:
        """Multiplications of elements, vectors alone."""
        each = {**MULTIPLIES, **WIDENING}
        vectors = (line for line in self.lines if re.search(r"\bv\d+\.", line))
        return sum(each.get(match[1], 0) for line in vectors if (match := INSTRUCTION.match(line)))

    @property
    def only_sums(self) -> bool:
        """Whether it adds products of what it loads, as a register tile does: transformations have coefficients."""
        counts = self.counts
        return counts["fadd"] + counts["fsub"] + counts["adrp"] == 0

    @property
    def loads(self) -> int:
        """Instructions of one iteration that load."""
        return sum(self.counts[name] for name in LOADS)

    @property
    def spills(self) -> int:
        """Loads from, and stores to, the stack."""
        return sum("[sp" in line for line in self.lines)

    def least_cycles(self, units: int) -> float:
        """What its vector multiplications take on so many units; widening ones have half of them."""
        counts = self.counts
        whole, half = (sum(counts[name] for name in names) for names in (MULTIPLIES, WIDENING))
        return whole / units + half / (units / 2)


def loops_of(text: str) -> Iterator[Loop]:
    """All of an assembly text."""
    lines = text.splitlines()
    labels: dict[str, int] = {}
    for at, line in enumerate(lines):
        if label := LABEL.match(line):
            labels[label[1]] = at
        elif (branch := BRANCH.match(line)) and branch[1] in labels:
            body = lines[labels[branch[1]] : at + 1]
            inner = [inside for inside in body[1:] if LABEL.match(inside)]
            if not inner and not any(re.match(r"^\s+(bl|blr|ret)\b", inside) for inside in body):
                yield Loop(tuple(body))


def busiest(loops: Sequence[Loop]) -> Loop:
    """Of those that only multiply, for a register tile at least, the one that does least besides. Raises ValueError."""
    tiles = [loop for loop in loops if loop.products >= LEAST_PRODUCTS and loop.only_sums]
    if not tiles:
        raise ValueError("no loop multiplies vectors")
    return max(tiles, key=lambda loop: loop.products / loop.instructions)
