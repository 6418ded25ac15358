from __future__ import annotations

import pytest

from compiler.ops import (
    columns,
    contraction,
    convolution,
    einsum,
    gather,
    grid_sample,
    pooling,
    quantise,
    recurrent,
    regions,
    resize,
    scatter,
    selection,
    sorting,
)
from tests.compiler.ops.node_cases import cases, run

FAMILIES = (
    columns,
    contraction,
    convolution,
    einsum,
    gather,
    grid_sample,
    pooling,
    quantise,
    recurrent,
    regions,
    resize,
    scatter,
    selection,
    sorting,
)
RECORDS = {operator.name: operator for family in FAMILIES for operator in family.OPERATORS}
SIZE_DEPENDS_ON_DATA = {"NonZero", "NonMaxSuppression", "Unique"}


NOT_IN_THE_SUITE = {"GlobalLpPool"}


@pytest.mark.parametrize("op", sorted(RECORDS))
def test_every_case_of_the_conformance_suite_is_computed_or_refused_for_its_size(op: str) -> None:
    found = [case for case in cases() if case.op == op]
    assert bool(found) == (op not in NOT_IN_THE_SUITE)
    for case in found:
        try:
            refusal = run(case, RECORDS[op])
        except AssertionError as error:
            raise AssertionError(f"{case.name}: {error}") from error
        assert bool(refusal) == (op in SIZE_DEPENDS_ON_DATA), f"{case.name}: {refusal}"


def test_the_suite_is_read_in_full() -> None:
    assert sum(case.op in RECORDS for case in cases()) > 250
