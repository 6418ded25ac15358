from __future__ import annotations

import warnings

import pytest

from tests.compiler.backend_cases import by_operator, judge, recorded, row


@pytest.mark.parametrize("operator", sorted(recorded()))
def test_an_operators_cases_are_computed_as_onnx_expects(operator: str) -> None:
    """Never a wrong answer, and no fewer answers than the table says (`python -m tests.compiler.backend_cases`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own making
        verdicts = [judge(case) for case in by_operator().get(operator, ())]
    found = row(operator, verdicts)
    print(found)
    assert not [verdict for verdict in verdicts if verdict.wrong]
    assert found.computed >= recorded()[operator].computed, [verdict for verdict in verdicts if verdict.refused]


def test_every_operator_of_the_suite_has_a_row() -> None:
    assert set(by_operator()) <= set(recorded())
