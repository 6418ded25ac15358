"""What rewriting and fusion did to a model and what they did not, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """The same thing said of several places in a model. Texts may quote names from the model.

    what   the rule, the choice or the step of fusion, by its name
    why    the equation it applies, or the reason of a refusal; what differs from place to place is an ellipsis
    count  of the places
    where  one of them
    note   what was saved, or which costs decided; may be empty
    """

    what: str
    why: str
    count: int
    where: str
    note: str = ""

    def __str__(self) -> str:
        note = f"\n        {self.note}" if self.note else ""
        return f"{self.count:5} x {self.what}: {self.why}{note}\n        such as at {self.where}"


@dataclass(frozen=True)
class Explanation:
    """Each list with what matters most first: what saved most, what was refused most often.

    applied  rules of rewriting
    refused  rules whose left side is there in the end, and that may not be applied
    taken    choices that pay by the costs of their kernels, and `left`: those that do not
    apart    kernels that touch and were not joined, by step of fusion
    weights  what their values have in common, each with its title: many zeros, few values
    precisions  of kernels, where each has its own (`precision` auto), by reason
    """

    applied: tuple[Entry, ...] = ()
    refused: tuple[Entry, ...] = ()
    taken: tuple[Entry, ...] = ()
    left: tuple[Entry, ...] = ()
    apart: tuple[Entry, ...] = ()
    weights: tuple[tuple[str, tuple[Entry, ...]], ...] = ()
    precisions: tuple[Entry, ...] = ()

    @property
    def sections(self) -> tuple[tuple[str, Sequence[Entry]], ...]:
        """Titles and what stands under them; those with nothing are not there."""
        found = (
            ("Rules applied", self.applied),
            ("Rules refused, and why", self.refused),
            ("Choices taken", self.taken),
            ("Choices left, and why", self.left),
            ("Kernels left apart, and why", self.apart),
            *self.weights,
            ("Kernels by precision", self.precisions),
        )
        return tuple((title, entries) for title, entries in found if entries)

    def __str__(self) -> str:
        return "\n\n".join(
            f"{title} ({sum(entry.count for entry in entries)})\n" + "\n".join(map(str, entries))
            for title, entries in self.sections
        )
