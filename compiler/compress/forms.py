"""Forms: which weights become zero together.

unstructured  each by itself
1x4           those of four neighbouring results at one place, which our sparse kernels load together
1x16          those of sixteen neighbouring results at one place, which a vector of fp32 holds
4x16          those of four neighbouring inputs for sixteen neighbouring results, which a vector of bytes or bf16 holds
2:4           two of each four neighbouring inputs
combined      all but the largest weight of a result in each group of inputs, formed so that least is lost: columns that
              can be packed (`compiler.encodings.combined`)
codebook      none: weights share few values, and a share is that of the bits that indices of them save
low_rank      none: the matrix is a product of two, and a share is that of the weights that these have fewer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compiler.encodings.combined import groups_of, largest_of_each

Form = Literal["unstructured", "1x4", "1x16", "4x16", "2:4", "combined", "codebook", "low_rank"]
CODEBOOK: Form = "codebook"
LOW_RANK: Form = "low_rank"
BLOCKS: Mapping[Form, tuple[int, int]] = {
    "unstructured": (1, 1),
    "combined": (1, 1),
    "1x4": (1, 4),
    "1x16": (1, 16),
    "4x16": (4, 16),
}
"""Neighbouring inputs and results that become zero together, of the forms that are no N:M."""
OF_THE_WHOLE: tuple[Form, ...] = ("combined",)
"""Forms whose zeros are chosen for a whole matrix, and not part by part."""
OF, KEPT = 4, 2
"""Inputs of a group of 2:4, and how many of them are kept."""
LEVELS: tuple[float, ...] = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of zeros that a layer may have, or of weights that factors of it have fewer."""


@dataclass(frozen=True)
class Words:
    """How messages and reports speak of a form.

    saved  what `sparsity` is a share of: `80 % zeros`
    done   what weights are then
    """

    saved: str
    done: str


PRUNED = Words("zeros", "pruned")
WORDS: Mapping[Form, Words] = {
    CODEBOOK: Words("bits saved", "clustered"),
    LOW_RANK: Words("weights saved", "factored"),
}
"""Of the forms that do not make weights zero."""


def words_of(form: Form) -> Words:
    """How messages and reports speak of a form."""
    return WORDS.get(form, PRUNED)


CLUSTERED: tuple[float, ...] = (0.75, 0.875, 0.9375)
"""Shares of fp32's bits that indices of 8, 4 and 2 bits save."""


def levels_of(form: Form) -> tuple[float, ...]:
    """The shares that a form has: 2:4 is half."""
    if form == CODEBOOK:
        return (0.0, *CLUSTERED)
    return LEVELS[:2] if form == "2:4" else LEVELS


def obstacle(form: Form, rows: int, depth: int) -> str | None:
    """Why weights of so many results and inputs cannot have a form; None where they can."""
    inputs, results = (1, 1) if form == CODEBOOK else BLOCKS.get(form, (OF, 1))
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
    if form == "combined":
        count = max(columns - int(share * columns + 1e-9), 1)
        return largest_of_each(scores, groups_of(scores, count))
    inputs, results = BLOCKS[form]
    groups = scores.reshape(rows // results, results, columns // inputs, inputs).sum((1, 3))
    dropped = np.argsort(groups, axis=None, kind="stable")[: int(share * groups.size + 1e-9)]
    kept = np.ones(groups.size, bool)
    kept[dropped] = False
    return kept.reshape(groups.shape).repeat(results, 0).repeat(inputs, 1)
