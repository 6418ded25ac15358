"""Recurrent layers as matrices: of each direction [W R], which is multiplied by an input and the state before it.

A GRU whose reset gate comes before its product multiplies a part of R by the state times that gate; what is said of
the state is taken for that too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.recurrent import GATES, HIDDEN, LENGTHS

RECURRENT = (*GATES,)
"""Operators whose weights are W float32[directions, gates, features] and R float32[directions, gates, hidden]."""
POSITIONS = (1, 2)
"""Of W and R among the inputs."""


def joined(w: np.ndarray, r: np.ndarray) -> np.ndarray:
    """[W R]: [directions, gates, features + hidden]."""
    return np.concatenate([w, r], axis=2)


def apart(operator: str, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W and R of what `joined` made."""
    hidden = weights.shape[1] // GATES[operator]
    w, r = np.split(weights, [weights.shape[2] - hidden], axis=2)
    return np.ascontiguousarray(w), np.ascontiguousarray(r)


def inputs_of(node: Node, read: Sequence[np.ndarray | None], y: np.ndarray) -> Iterator[np.ndarray]:
    """What each direction's [W R] is multiplied by, step after step: float64[steps of all sequences, columns].

    read  the node's inputs, None for one that is absent
    y     its first result: all states
    """
    x, *_ = read
    assert x is not None, "a recurrent layer has an input"
    lengths, initial = (read[at] if len(read) > at else None for at in (LENGTHS, HIDDEN))
    if node.attrs.get("layout", 0):
        x, y = x.swapaxes(0, 1), y.transpose(1, 2, 0, 3)
        initial = None if initial is None else initial.swapaxes(0, 1)
    steps, directions, batch, hidden = y.shape
    last = np.full(batch, steps) - 1 if lengths is None else lengths - 1
    step = np.arange(steps)[:, None]
    for direction in range(directions):
        backward = node.attrs.get("direction") == "reverse" or direction == 1
        before = np.roll(y[:, direction], -1 if backward else 1, axis=0)
        begins = np.zeros((batch, hidden)) if initial is None else initial[direction]
        first = step == (last if backward else 0)
        states = np.where(first[..., None], begins, before)
        yield np.concatenate([x, states], axis=2)[step <= last].astype(np.float64)
