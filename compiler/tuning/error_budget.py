"""How much error the tiles of one model may add, and to which kernels.

The errors of layers add up as random numbers do: L layers that lose e each lose e sqrt(L) together. So each call that
could be carried out inexactly may lose SHARE / sqrt(calls) of the job's tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from compiler.tuning.proposal import Proposal

SHARE = 0.5
"""The part of the tolerance that is spent on purpose.

The rest is for the rounding of plain sums and for models that amplify errors.
"""


def allowed_error(calls: Iterable[Sequence[Proposal]], tolerance: float) -> float:
    """The error one call may add, given what was proposed for each; 0 admits exact algorithms only."""
    inexact = sum(any(option.error for option in options) for options in calls)
    return SHARE * tolerance / math.sqrt(max(inexact, 1))
