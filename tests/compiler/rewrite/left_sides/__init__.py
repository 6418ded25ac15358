"""For every rule random instances of its left side, by subject.

Also programs that look like it and must stay as they are.
"""

from collections.abc import Mapping

from tests.compiler.rewrite.left_sides import (
    activations,
    around_norms,
    attention,
    bounds,
    cells,
    clamps,
    convolutions,
    demand,
    folding,
    gathers,
    identities,
    motion,
    norms,
    padding,
    passing,
    pixels,
    positions,
    quantised,
    reassociation,
    recurrence,
    reductions,
    requantised,
    rotary,
    shapes,
    slices,
    softmax,
    splits,
    tables,
    weights,
)
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

SUBJECTS = (
    demand,
    quantised,
    requantised,
    tables,
    folding,
    identities,
    clamps,
    shapes,
    slices,
    splits,
    gathers,
    motion,
    reductions,
    activations,
    norms,
    around_norms,
    softmax,
    cells,
    pixels,
    positions,
    rotary,
    attention,
    bounds,
    padding,
    passing,
    recurrence,
    weights,
    convolutions,
    reassociation,
)
LEFT: Mapping[str, Drawing] = {name: drawing for subject in SUBJECTS for name, drawing in subject.LEFT.items()}
"""A drawing of a left side, by the rule's name."""
REFUSED: Mapping[str, Refusal] = {name: refusal for subject in SUBJECTS for name, refusal in subject.REFUSED.items()}
"""A program at which the rule must do nothing, and its reason."""
