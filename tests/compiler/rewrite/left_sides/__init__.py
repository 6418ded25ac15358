"""For every rule: random instances of its left side, and programs that look like it and must stay as they are, by subject."""

from collections.abc import Mapping

from tests.compiler.rewrite.left_sides import (
    activations,
    attention,
    cells,
    clamps,
    convolutions,
    folding,
    gathers,
    identities,
    motion,
    norms,
    padding,
    pixels,
    quantised,
    reassociation,
    recurrence,
    reductions,
    rotary,
    shapes,
    slices,
    weights,
)
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

SUBJECTS = (
    quantised,
    folding,
    identities,
    clamps,
    shapes,
    slices,
    gathers,
    motion,
    reductions,
    activations,
    norms,
    cells,
    pixels,
    rotary,
    attention,
    padding,
    recurrence,
    weights,
    convolutions,
    reassociation,
)
LEFT: Mapping[str, Drawing] = {name: drawing for subject in SUBJECTS for name, drawing in subject.LEFT.items()}
"""A drawing of a left side, by the rule's name."""
REFUSED: Mapping[str, Refusal] = {name: refusal for subject in SUBJECTS for name, refusal in subject.REFUSED.items()}
"""A program at which the rule must do nothing, and its reason."""
