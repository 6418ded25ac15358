"""Which axes of a graph's inputs and outputs have a size that is only known while running.

Such a graph is static all the same: each of these axes has its capacity, the largest size it may take, and the sizes
are scalars (i64) that the graph is given and gives beside its tensors. Its inputs are those of the model, each zero
beyond its sizes, followed by one scalar for each dimension; its outputs are those of the model, followed by one scalar
for each size that `outputs` names and each number that `limits` names. Positions here are those in `Graph.inputs` and
`Graph.outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Example = tuple[int | float | bool, ...]
"""The elements of an input, in row-major order."""


@dataclass(frozen=True)
class OpenDimension:
    """A dimension of inputs that a caller chooses by the shapes it gives.

    `low` <= size <= `high`, and size is a multiple of `step`.
    """

    name: str
    low: int
    high: int
    step: int = 1


@dataclass(frozen=True)
class Limit:
    """A number that a run finds in its data, and between which ends: beyond these its other results mean nothing.

    says    what must hold, as the error says of data for which it does not
    output  number of the graph's output that holds it, a scalar (i64)
    sizes   of two sizes that must be equal: the numbers of the graph's outputs that hold them, where there are such
    """

    says: str
    low: int
    high: int
    output: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PackedTexts:
    """Inputs whose one axis has the tokens of many texts, one text behind the other, before one of their places.

    That last input of the model has the place of each text's first token, and of the end, behind them.

    longest    tokens that a text may have
    ones       inputs of the model as it came that are ones for each token, and that nobody gives
    by_tokens  of each output: whether it has a row for each token, rather than one for each text
    """

    longest: int
    ones: tuple[str, ...]
    by_tokens: tuple[bool, ...]


@dataclass(frozen=True)
class OpenShapes:
    """The open axes of a graph.

    dimensions  number k is the graph's input `len(inputs) + k`
    inputs      for each input of the model and each of its axes: the number of its dimension; None where it is static
    outputs     for each output of the model and each of its axes: the number of the graph's output that holds its size;
                None where it is static
    limits      what must hold of data for a run to have a meaning
    examples    by number of an input: what it may be, where few values are legal; those of one place go together
    assumed     by name of a node: the greatest that sizes may be that data say there, where nobody said it
    equal       of `limits`, what those say that are of sizes which are assumed to be equal
    texts       of inputs that have the tokens of many texts; None: of others
    """

    dimensions: tuple[OpenDimension, ...]
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    limits: tuple[Limit, ...] = ()
    examples: tuple[tuple[int, tuple[Example, ...]], ...] = ()
    assumed: tuple[tuple[str, int], ...] = ()
    equal: tuple[str, ...] = ()
    texts: PackedTexts | None = None

    def broken(self, outputs: Sequence[int], values: Mapping[int, np.ndarray]) -> str:
        """What does not hold of a run, of whose graph `values` has the outputs by id; empty where all does."""
        found = (one for one in self.limits if not one.low <= int(values[outputs[one.output]]) <= one.high)
        if (one := next(found, None)) is None:
            return ""
        return f"{one.says}: " + " and ".join(str(int(values[outputs[at]])) for at in one.sizes or (one.output,))
