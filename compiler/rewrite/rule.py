"""The record of one rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from compiler.ir.graph import Node
from compiler.rewrite.view import No, Rewrite, View

Match = Callable[[View, Node], Rewrite | No | None]
"""What a rule does at a node: None where its left side is not there, No where it must not be applied."""


@dataclass(frozen=True)
class Kind:
    """How far the two sides of a rule may differ.

    exact         every element is the same number: NaN stays NaN, infinities and zeros keep their sign
    reassociates  the sides are equal over the reals; rounding (and the sign of a zero) may differ
    approximate   they differ over the reals, by at most `bound` of the largest value of the result
    """

    name: str
    bound: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}({self.bound:g})" if self.bound else self.name


EXACT = Kind("exact")
REASSOCIATES = Kind("reassociates")


def approximate(bound: float) -> Kind:
    """The kind of a rule whose sides differ by at most `bound` > 0 of the largest value of the result."""
    if not bound > 0:
        raise ValueError(f"an approximation needs a bound above 0, not {bound}")
    return Kind("approximate", bound)


@dataclass(frozen=True)
class Rule:
    """A named equation. Its left side ends in a node of one of `ops`; no `ops` means any operator."""

    kind: Kind
    ops: tuple[str, ...]
    match: Match

    @property
    def name(self) -> str:
        """The name of the function that matches it, as in `RULES`, in options and in reports."""
        return self.match.__name__

    @property
    def family(self) -> str:
        """The subject: the name of the file that the rule stands in."""
        return self.match.__module__.rpartition(".")[2]

    @property
    def equation(self) -> str:
        """The first paragraph of the docstring as one line, without its full stop."""
        return (inspect.getdoc(self.match) or "").partition("\n\n")[0].replace("\n", " ").removesuffix(".")
