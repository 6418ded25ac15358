"""Which nodes, sizes and weights a failure needs: delta debugging (Zeller and Hildebrandt, 2002, ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from compiler.minimise.network import Network, Part, floats

SMALLER: tuple[Callable[[int], int], ...] = (lambda _: 1, lambda _: 2, lambda size: size // 4, lambda size: size // 2)
"""Sizes that an axis is tried with, in order."""
BACK = (0, 1, 2, 4, 8, 16)
"""How many steps back of the nodes that the failure names, in order."""


class OutOfTime(Exception):
    """The seconds or trials are spent; what was found so far holds."""


@dataclass(frozen=True)
class Step:
    """A step of the search: what was tried, how many trials that took, and how many nodes remained."""

    step: str
    trials: int
    nodes: int


@dataclass
class Search:
    """Parts that were tried, and the smallest that fails.

    fails     whether a part fails in the same way
    is_over   whether the time to search is over
    log       the steps so far
    """

    network: Network
    best: Part
    fails: Callable[[Part], bool]
    is_over: Callable[[], bool]
    most_trials: int
    trials: int = 0
    log: list[Step] = field(default_factory=list)
    _known: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def accept(self, part: Part) -> bool:
        """Whether the part fails; then it is the best. Raises OutOfTime."""
        if not part.nodes or part.key == self.best.key:
            return False
        if part.key not in self._known:
            if self.is_over() or self.trials >= self.most_trials:
                raise OutOfTime
            self.trials += 1
            self._known[part.key] = self.fails(part)
        if self._known[part.key]:
            self.best = part
        return self._known[part.key]

    def run(self, named: Sequence[int]) -> bool:
        """Reduces as far as time allows; whether nothing is left that could be tried.

        named  nodes that the failure names
        """
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("nodes named by the failure, with those before them", lambda: self._named(named)),
            ("nodes left out (ddmin)", self._nodes),
            ("axes made shorter", self._sizes),
            ("weights filled with one number", self._weights),
            ("nodes left out, again", self._nodes),
        )
        for what, step in steps:
            before = self.trials
            try:
                step()
            except OutOfTime:
                self._note(what, before)
                return False
            self._note(what, before)
        return True

    def _note(self, what: str, before: int) -> None:
        self.log.append(Step(what, self.trials - before, len(self.best.nodes)))

    def _named(self, named: Sequence[int]) -> None:
        """The nodes that the failure names alone, then with more and more of those before them."""
        every = {*self.best.nodes}
        for start in dict.fromkeys([tuple(named[:1]), tuple(named)]):
            for depth in BACK:
                kept = self.network.ancestors(start, depth) & every
                if kept and len(kept) < len(every) and self.accept(self.best.only(kept)):
                    return

    def _nodes(self) -> None:
        """ddmin: chunks and their complements, until no single node can be left out."""
        pieces = 2
        while len(self.best.nodes) > 1:
            nodes = self.best.nodes
            chunks = _chunks(nodes, min(pieces, len(nodes)))
            tried: Iterable[Sequence[int]] = chunks if len(chunks) == 2 else ()
            if any(self.accept(self.best.only(chunk)) for chunk in tried):
                pieces = 2
                continue
            if any(self.accept(self.best.only({*nodes} - {*chunk})) for chunk in reversed(chunks)):
                pieces = max(len(chunks) - 1, 2)
                continue
            if len(chunks) == len(nodes):
                return
            pieces = 2 * len(chunks)

    def _sizes(self) -> None:
        """All axes of one size are made shorter together, in inputs and initializers, so that they still fit."""
        for size in self.network.axes(self.best):
            for smaller in dict.fromkeys(made for make in SMALLER if 0 < (made := make(size)) < size):
                sizes = {old: smaller if new == size else new for old, new in self.best.sizes.items()}
                if self.accept(replace(self.best, sizes={**sizes, size: smaller})):
                    break

    def _weights(self) -> None:
        """Float initializers are filled with one number, all at once or one by one."""
        names = floats(self.network.tensors_of(self.best))
        if names and not self.accept(replace(self.best, filled=frozenset(names))):
            for name in names:
                self.accept(replace(self.best, filled=self.best.filled | {name}))


def _chunks(nodes: Sequence[int], count: int) -> list[Sequence[int]]:
    ends = [len(nodes) * at // count for at in range(count + 1)]
    return [nodes[low:high] for low, high in pairwise(ends) if high > low]
