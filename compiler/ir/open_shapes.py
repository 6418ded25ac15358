"""Which axes of a graph's inputs and outputs have a size that is only known while running.

Such a graph is static all the same: each of these axes has its capacity, the largest size it may take, and the sizes
are scalars (i64) that the graph is given and gives beside its tensors. Its inputs are those of the model, each zero
beyond its sizes, followed by one scalar for each dimension; its outputs are those of the model, followed by one scalar
for each size that `outputs` names. Positions here are those in `Graph.inputs` and `Graph.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass


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
class OpenShapes:
    """The open axes of a graph.

    dimensions  number k is the graph's input `len(inputs) + k`
    inputs      for each input of the model and each of its axes: the number of its dimension; None where it is static
    outputs     for each output of the model and each of its axes: the number of the graph's output that holds its size;
                None where it is static
    """

    dimensions: tuple[OpenDimension, ...]
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
