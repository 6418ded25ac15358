"""For every choice programs drawn at random at which it may be made, by subject.

Also programs that look like them and must stay as they are.
"""

from collections.abc import Mapping
from types import ModuleType

from tests.compiler.rewrite.choices import gates, kernels, low_rank, pools, siblings, sums
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

SUBJECTS: tuple[ModuleType, ...] = (gates, siblings, sums, kernels, pools, low_rank)
LEFT: Mapping[str, Drawing] = {name: drawing for subject in SUBJECTS for name, drawing in subject.LEFT.items()}
"""A drawing of a left side, by the choice's name."""
REFUSED: Mapping[str, Refusal] = {name: refusal for subject in SUBJECTS for name, refusal in subject.REFUSED.items()}
"""A program at which the choice is not offered, and its reason."""
