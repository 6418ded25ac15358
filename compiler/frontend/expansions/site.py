"""One call as a rule that rewrites it sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported


class NotKnown(Unsupported):
    """An input that must be known when compiling is not: which one, and what the operator calls it."""

    def __init__(self, position: int, name: str) -> None:
        super().__init__(f"input {name!r} must be known when compiling, but is computed at run time")
        self.position = position
        self.name = name


@dataclass(frozen=True)
class Site:
    """One call as a rule sees it. `types` and `constants` follow the inputs; None: absent, or not constant."""

    call: Call
    types: tuple[TensorType | None, ...]
    constants: tuple[np.ndarray | None, ...]
    texts: tuple[bool, ...] = ()
    """Of each input, whether it holds numbers of strings; empty: none does."""
    numbers_of: Callable[[np.ndarray], np.ndarray] = field(default=np.asarray, compare=False)
    """The numbers that the program has for strings."""

    @property
    def is_text(self) -> bool:
        """Whether the first input is strings."""
        return bool(self.texts) and self.texts[0]

    @property
    def names(self) -> tuple[str, ...]:
        """x0, x1, ..., the empty name for an absent input."""
        return tuple(f"x{position}" if name else "" for position, name in enumerate(self.call.inputs))

    @property
    def results(self) -> tuple[str, ...]:
        """y0, y1, ..., the empty name for an output that is not asked for."""
        return tuple(f"y{position}" if name else "" for position, name in enumerate(self.call.outputs))

    @property
    def first(self) -> TensorType:
        """Type of the first input."""
        if not self.types or self.types[0] is None:
            raise Unsupported("its first input is absent", "export the model again")
        return self.types[0]

    def given(self, position: int) -> TensorType:
        """Type of an input that must be there."""
        found = self.types[position] if position < len(self.types) else None
        if found is None:
            raise Unsupported(f"input {position} is absent but required", "export the model again")
        return found

    def known(self, position: int, name: str) -> np.ndarray | None:
        """An input that must be constant; None where it is absent. Raises NotKnown."""
        if position >= len(self.types) or self.types[position] is None:
            return None
        found = self.constants[position]
        if found is None:
            raise NotKnown(position, name)
        return found

    def known_scalar(self, position: int, name: str) -> int | None:
        """An input that must be one constant whole number; None where it is absent. Raises Unsupported."""
        found = self.known(position, name)
        if found is None:
            return None
        if found.size != 1 or found.dtype.kind not in "iu":
            raise Unsupported(
                f"input {name!r} is {found.tolist()!s:.60}, not one whole number", "export the model again"
            )
        return int(found.reshape(()))

    def ints(self, name: str) -> tuple[int, ...] | None:
        """An attribute of ints, None where it is not given."""
        value = self.call.attrs.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise Unsupported(f"attribute {name!r} is not a list of ints", "export the model again")
        return tuple(int(item) for item in value if isinstance(item, int))

    def integer(self, name: str, default: int) -> int:
        """An attribute that is one int."""
        value = self.call.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def attrs_without(self, *names: str) -> dict[str, AttrValue]:
        """The call's attributes but these, of which any may be absent."""
        return {name: value for name, value in self.call.attrs.items() if name not in names}

    def becomes(self, *calls: Call, **constants: np.ndarray) -> Expansion:
        """An Expansion of these calls, reading x0, ... and defining y0, ..."""
        inputs = tuple(f"x{position}" for position in range(len(self.call.inputs)))
        outputs = tuple(f"y{position}" for position in range(len(self.call.outputs)))
        return Expansion(inputs, outputs, calls, constants)
