"""What the names of tensors mean at one place of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.errors import MalformedModel
from compiler.frontend.reading.model import Foreign, quoted

REFUSED = -1
"""Stands for the id of a value whose node was refused: what reads it is passed over in silence."""

Slot = int | None | Foreign
"""A value's id; None for an absent optional input; Foreign for a constant without an element type here."""


@dataclass
class Scope:
    """Names of one body. A branch sees its `parent`; a function's or an upgrade's scope has none.

    `prefix` goes before names and node sources of a function's inside; `named` is false where names are the compiler's
    own, in the definition of operator `defines`.
    """

    opsets: Mapping[str, int]
    prefix: str = ""
    named: bool = True
    defines: str = ""
    parent: Scope | None = None
    slots: dict[str, Slot] = field(default_factory=dict)

    def find(self, name: str) -> Slot:
        """The slot of a name, from the innermost scope out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.slots:
                return scope.slots[name]
            scope = scope.parent
        raise MalformedModel(f"tensor {quoted(name)} is read but never defined", fix="export the model again")

    def label(self, name: str) -> str:
        """What a value defined here is called in the graph."""
        return self.prefix + name if self.named else ""

    def source(self, source: str) -> str:
        """What a node of this scope is called: by its own name.

        Where the compiler made it, by that of the call it stands for.
        """
        return self.prefix + source if self.named else self.prefix

    def inner(self) -> Scope:
        """A scope that sees this one: a branch."""
        return Scope(self.opsets, self.prefix, self.named, self.defines, self)
