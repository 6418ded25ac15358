"""One file per operator family; one record per operator (see `operator`). OPERATORS is every one of them, by ONNX name.

`having` lists which have a trait (see `traits`).

May know: `ir`. Must not know: rewriting, devices, C.
"""

from collections.abc import Mapping

from compiler.ops import (
    activation,
    cast,
    columns,
    contraction,
    convolution,
    einsum,
    elementwise,
    gather,
    grid_sample,
    normalise,
    pooling,
    quantise,
    recurrent,
    reduction,
    regions,
    resize,
    scatter,
    selection,
    sorting,
    views,
)
from compiler.ops.operator import Operator
from compiler.ops.traits import Trait

FAMILIES: tuple[tuple[Operator, ...], ...] = (
    elementwise.OPERATORS,
    activation.OPERATORS,
    cast.OPERATORS,
    views.OPERATORS,
    reduction.OPERATORS,
    normalise.OPERATORS,
    convolution.OPERATORS,
    columns.OPERATORS,
    pooling.OPERATORS,
    contraction.OPERATORS,
    einsum.OPERATORS,
    gather.OPERATORS,
    grid_sample.OPERATORS,
    regions.OPERATORS,
    scatter.OPERATORS,
    selection.OPERATORS,
    resize.OPERATORS,
    recurrent.OPERATORS,
    quantise.OPERATORS,
    sorting.OPERATORS,
)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in FAMILIES for operator in family}
"""Every operator the compiler has a record for."""


def having(trait: Trait) -> frozenset[str]:
    """The names of all operators with a trait; of several traits together, those with every one of them."""
    return frozenset(name for name, operator in OPERATORS.items() if trait in operator.traits)
