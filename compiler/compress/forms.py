"""Forms: which weights become zero together.

unstructured  each by itself
1x4           those of four neighbouring results at one place, which our sparse kernels load together
1x16          those of sixteen neighbouring results at one place, which a vector of fp32 holds
4x16          those of four neighbouring inputs for sixteen neighbouring results, which a vector of bytes or bf16 holds
2:4           two of each four neighbouring inputs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

Form = Literal["unstructured", "1x4", "1x16", "4x16", "2:4"]
BLOCKS: Mapping[Form, tuple[int, int]] = {"unstructured": (1, 1), "1x4": (1, 4), "1x16": (1, 16), "4x16": (4, 16)}
"""Neighbouring inputs and results that become zero together, of the forms that are no N:M."""
OF, KEPT = 4, 2
"""Inputs of a group of 2:4, and how many of them are kept."""
LEVELS: tuple[float, ...] = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of zeros that a layer may have."""


def levels_of(form: Form) -> tuple[float, ...]:
    """The shares that a form has: 2:4 is half."""
    return LEVELS[:2] if form == "2:4" else LEVELS


def obstacle(form: Form, rows: int, depth: int) -> str | None:
    """Why weights of so many results and inputs cannot have a form; None where they can."""
    inputs, results = BLOCKS.get(form, (OF, 1))
    if rows % results:
        return f"it has {rows} results, which are no multiple of {results}, as {form} demands"
    if depth % inputs:
        return f"it has {depth} inputs, which are no multiple of {inputs}, as {form} demands"
    return None


def mask_of(scores: np.ndarray, form: Form, share: float) -> np.ndarray:
    """What is kept of a matrix [results, products]: the greatest scores, so that `share` of all become zero.

    Ties go to the first. The share is rounded down to whole groups. Raises ValueError for a shape without the form.
    """
    rows, columns = scores.shape
    if obstacle(form, rows, columns) is not None:
        raise ValueError(f"scores of shape {scores.shape} have no form {form}")
    if form == "2:4":
        groups = scores.reshape(-1, OF)
        order = np.argsort(-groups, axis=1, kind="stable")
        kept = np.zeros(groups.shape, bool)
        np.put_along_axis(kept, order[:, :KEPT], True, axis=1)
        return kept.reshape(scores.shape) if share else np.ones(scores.shape, bool)
    inputs, results = BLOCKS[form]
    groups = scores.reshape(rows // results, results, columns // inputs, inputs).sum((1, 3))
    dropped = np.argsort(groups, axis=None, kind="stable")[: int(share * groups.size + 1e-9)]
    kept = np.ones(groups.size, bool)
    kept[dropped] = False
    return kept.reshape(groups.shape).repeat(results, 0).repeat(inputs, 1)
