from __future__ import annotations

import pytest

from compiler.ops import (
    contraction,
    convolution,
    einsum,
    gather,
    grid_sample,
    pooling,
    quantise,
    recurrent,
    resize,
    scatter,
    selection,
    sorting,
)
from tests.compiler.ops.node_cases import Case, cases, run

FAMILIES = (
    contraction,
    convolution,
    einsum,
    gather,
    grid_sample,
    pooling,
    quantise,
    recurrent,
    resize,
    scatter,
    selection,
    sorting,
)
RECORDS = {operator.name: operator for family in FAMILIES for operator in family.OPERATORS}
SIZE_DEPENDS_ON_DATA = {"NonZero", "NonMaxSuppression", "Unique"}


def ours() -> list[Case]:
    return [case for case in cases() if case.op in RECORDS]


@pytest.mark.parametrize("case", ours(), ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed_or_refused_for_its_size(case: Case) -> None:
    refusal = run(case, RECORDS[case.op])
    assert bool(refusal) == (case.op in SIZE_DEPENDS_ON_DATA), refusal


def test_the_suite_covers_the_operators() -> None:
    covered = {case.op for case in ours()}
    assert len(ours()) > 200
    assert set(RECORDS) - covered == {"LpPool", "GlobalLpPool"} - covered
