"""The equations, one file per subject. RULES is every one of them, in the order in which they are tried at a node.

What makes nodes vanish comes before what only changes their form; a composed form is recognised before its parts are folded into
weights around it. The README beside this file says how to write one.
"""

from compiler.rewrite.rule import Rule
from compiler.rewrite.rules import (
    activations,
    clamps,
    folding,
    identities,
    norms,
    padding,
    quantised,
    reassociation,
    recurrence,
    shapes,
    slices,
    weights,
)

RULES: tuple[Rule, ...] = (
    *quantised.RULES,
    *folding.RULES,
    *identities.RULES,
    *clamps.RULES,
    *shapes.RULES,
    *slices.RULES,
    *activations.RULES,
    *norms.RULES,
    *padding.RULES,
    *recurrence.RULES,
    *weights.RULES,
    *reassociation.RULES,
)
"""Every rule."""
