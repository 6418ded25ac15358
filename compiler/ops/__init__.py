"""One file per operator family; one record per operator (see `operator`).

OPERATORS is every one of them by name, MODEL_OPERATORS those that a model may contain. `having` lists
which have a trait (see `traits`).

May know: `ir`. Must not know: rewriting, devices, C.
"""

from collections.abc import Mapping

from compiler.ops import (
    activation,
    bounds,
    boxes,
    byte_table,
    cast,
    columns,
    contraction,
    convolution,
    einsum,
    elementwise,
    forest,
    gather,
    grid_sample,
    normalise,
    pooling,
    quantise,
    random,
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
    boxes.OPERATORS,
)

MODEL_OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in FAMILIES for operator in family}
"""Every operator of ai.onnx the compiler has a record for."""
_OWN = (
    *(*bounds.OPERATORS, *boxes.OWN, *byte_table.OPERATORS, *convolution.OWN, *forest.OPERATORS, *random.OPERATORS),
    *regions.OWN,
    *recurrent.OWN,
)
OPERATORS: Mapping[str, Operator] = {**MODEL_OPERATORS, **{operator.name: operator for operator in _OWN}}
"""These and the compiler's own, which no model contains."""


def having(trait: Trait) -> frozenset[str]:
    """The names of all operators with a trait; of several traits together, those with every one of them."""
    return frozenset(name for name, operator in OPERATORS.items() if trait in operator.traits)
