"""The equations, one file per subject. RULES is every one of them, in the order in which they are tried at a node.

What makes nodes vanish comes before what only changes their form; a composed form is recognised before its parts are
folded into weights around it. The README beside this file says how to write one.
"""

from compiler.rewrite.rule import Rule
from compiler.rewrite.rules import (
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
    weights,
)

RULES: tuple[Rule, ...] = (
    *quantised.RULES,
    *requantised.RULES,
    *folding.RULES,
    *identities.RULES,
    *clamps.RULES,
    *shapes.RULES,
    *slices.RULES,
    *gathers.RULES,
    *motion.RULES,
    *demand.RULES,
    *reductions.RULES,
    *activations.RULES,
    *norms.RULES,
    *around_norms.RULES,
    *softmax.RULES,
    *cells.RULES,
    *pixels.RULES,
    *rotary.RULES,
    *attention.RULES,
    *padding.RULES,
    *bounds.RULES,
    *recurrence.RULES,
    *weights.RULES,
    *passing.RULES,
    *positions.RULES,
    *convolutions.RULES,
    *splits.RULES,
    *reassociation.RULES,
)
"""Every rule."""
