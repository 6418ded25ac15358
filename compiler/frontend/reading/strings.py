"""Strings while a model is read: every one that it holds gets a number, and values that hold such numbers are marked.

What only moves elements moves these numbers too, and two of them are equal where their strings are. No other operator
may read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ops import having
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait

MOVING = having(Trait.MOVES) | {"Identity", "PadBeyond"}
ALL_INPUTS = frozenset(("Concat", "Equal"))
"""Operators whose inputs are strings all together."""
CHOSEN = "Where"
MAKING = frozenset(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"))
"""Operators that are steps before the program (`steps`)."""
NUMBER_OF = "tilewright::StringNumber"
"""What the compiler's own definitions call the numbers of strings as numbers; no model may."""
FIX = "compute it before the model, or export with numbers"


def is_text(value: object) -> bool:
    """Whether it is an array of strings."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def text_array(items: Sequence[str], shape: tuple[int, ...] | None = None) -> np.ndarray:
    """An array of strings, read-only."""
    array = np.empty(len(items), object)
    array[:] = items
    array = array if shape is None else array.reshape(shape)
    array.flags.writeable = False
    return array


def gives_text(op: str, are_text: Sequence[bool]) -> bool:
    """Whether an operator's results are strings, of inputs that are or not. Raises Unsupported where it takes none."""
    if not any(are_text):
        return False
    if op in ALL_INPUTS:
        fits = all(are_text)
    elif op == CHOSEN:
        fits = [*are_text] == [False, True, True]
    else:
        fits = op in MOVING and are_text[0] and not any(are_text[1:])
    if not fits and op in MAKING:
        raise Unsupported(
            "strings are made before the program runs, of inputs and constants, and not of what it computes",
            "apply it to inputs of the model, in a form that docs/operators.md lists",
        )
    if not fits:
        raise Unsupported("it reads strings, of which the operator is only compiled for numbers", FIX)
    return op != "Equal"
