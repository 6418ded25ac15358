"""Substitutions of which only costs can say whether they pay, one file per subject. CHOICES is every one of them.

They are equations as those in `rules`, written in the same way. A rule makes every program better; a choice makes
another program of it, with fewer and larger operators or with more arithmetic, and `compiler.rewrite.choose` takes it
where kernels are known, or modelled, to be faster for it.
"""

from compiler.rewrite.choices import gates, kernels, low_rank, pools, siblings, sums
from compiler.rewrite.rule import Rule

CHOICES: tuple[Rule, ...] = (
    *gates.CHOICES,
    *siblings.CHOICES,
    *sums.CHOICES,
    *kernels.CHOICES,
    *pools.CHOICES,
    *low_rank.CHOICES,
)
"""Every choice."""
