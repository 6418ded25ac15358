"""The rules that bring a model to an accelerator.

A rule is written as those of `compiler.rewrite.rules` are; it need not ask whether the accelerator has what it writes
(`compiler.legalise.program`).
"""

from compiler.legalise.rules import approximations, layers, maps
from compiler.rewrite.rule import Rule

EQUAL: tuple[Rule, ...] = (*layers.RULES, *maps.RULES)
"""Both sides are equal over the reals."""
APPROXIMATE: tuple[Rule, ...] = approximations.RULES
"""The sides differ by a proved bound: sigmoid forms before sums of ReLUs."""
RULES: tuple[Rule, ...] = (*EQUAL, *APPROXIMATE)
"""Every rule."""
