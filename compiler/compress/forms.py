"""Forms: which weights become zero together.

unstructured  each by itself
1x4           those of four neighbouring results at one place, which our sparse kernels load together
2:4           two of each four neighbouring inputs
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Form = Literal["unstructured", "1x4", "2:4"]
TOGETHER = 4
"""Results of a group of 1x4, and inputs of a group of 2:4."""
LEVELS: tuple[float, ...] = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of zeros that a layer may have."""


def levels_of(form: Form) -> tuple[float, ...]:
    """The shares that a form has: 2:4 is half."""
    return LEVELS[:2] if form == "2:4" else LEVELS


def obstacle(form: Form, rows: int, depth: int) -> str | None:
    """Why weights of so many results and inputs cannot have a form; None where they can."""
    if form == "1x4" and rows % TOGETHER:
        return f"it has {rows} results, which are no multiple of {TOGETHER}, as 1x4 demands"
    if form == "2:4" and depth % TOGETHER:
        return f"it has {depth} inputs, which are no multiple of {TOGETHER}, as 2:4 demands"
    return None


def mask_of(scores: np.ndarray, form: Form, share: float) -> np.ndarray:
    """What is kept of a matrix [results, products]: the greatest scores, so that `share` of all become zero.

    Ties go to the first. The share is rounded down to whole groups. Raises ValueError for a shape without the form.
    """
    rows, columns = scores.shape
    if obstacle(form, rows, columns) is not None:
        raise ValueError(f"scores of shape {scores.shape} have no form {form}")
    if form == "2:4":
        groups = scores.reshape(-1, TOGETHER)
        order = np.argsort(-groups, axis=1, kind="stable")
        kept = np.zeros(groups.shape, bool)
        np.put_along_axis(kept, order[:, : TOGETHER // 2], True, axis=1)
        return kept.reshape(scores.shape) if share else np.ones(scores.shape, bool)
    many = TOGETHER if form == "1x4" else 1
    groups = scores.reshape(rows // many, many, columns).sum(1)
    dropped = np.argsort(groups, axis=None, kind="stable")[: int(share * groups.size + 1e-9)]
    kept = np.ones(groups.size, bool)
    kept[dropped] = False
    return kept.reshape(groups.shape).repeat(many, 0)
