"""Every rule: its left side equals its right side, its program before and after, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.ir.tensor import DType
from compiler.rewrite import EXACT, Rule, rewrite
from compiler.rewrite.rules import RULES
from tests.compiler.rewrite.left_sides import LEFT, REFUSED
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning, sums_are_exact

GOLDENS = Path(__file__).parent / "goldens"
INSTANCES = 25
EACH_RULE = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])


def test_every_rule_has_a_name_of_its_own_an_equation_instances_and_a_refusal() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert set(names) == set(LEFT) == set(REFUSED)
    assert all("=" in rule.equation for rule in RULES)


@EACH_RULE
def test_both_sides_of_the_equation_are_equal(rule: Rule) -> None:
    exact = rule.kind == EXACT
    for seed in range(INSTANCES):
        graph = LEFT[rule.name](Sketch(seed, DType.F32 if exact else DType.F64))
        after = rewrite(graph, rules=(rule,))
        assert rule.name in {application.rule for application in after.log}, graph
        assert {application.kind for application in after.log if application.rule == rule.name} == {str(rule.kind)}
        assert_same_meaning(graph, after, seed, exact)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.kind == EXACT], ids=lambda rule: rule.name)
def test_what_is_exact_is_exact_in_halves_as_well(rule: Rule, dtype: DType) -> None:
    for seed in range(5):
        with np.errstate(all="ignore"):
            graph = LEFT[rule.name](Sketch(seed, dtype))
            assert_same_meaning(graph, rewrite(graph, rules=(rule,)), seed, exact=True)


@EACH_RULE
def test_in_float32_folding_rounds_once_and_stays_within_a_few_units_in_the_last_place(rule: Rule) -> None:
    for seed in range(5):
        graph = LEFT[rule.name](Sketch(seed, DType.F32))
        assert_same_meaning(graph, rewrite(graph, rules=(rule,)), seed, rtol=2e-6)


@EACH_RULE
def test_what_a_rule_refuses_stays_as_it_is_and_has_a_reason(rule: Rule) -> None:
    drawing, reason = REFUSED[rule.name]
    for seed in range(5):
        graph = drawing(Sketch(seed))
        after = rewrite(graph, rules=(rule,))
        assert after.graph is graph
        assert not after.log
        if reason:
            assert any(refusal.where.startswith("'n") and reason in refusal.reason for refusal in after.refusals)
        else:
            assert not after.refusals


def program(rule: Rule) -> str:
    """The rule's equation, and a program before and after it."""
    graph = LEFT[rule.name](Sketch(1, in_eighths=True))
    after = rewrite(graph, rules=(rule,))
    return f"{rule.equation}\n{rule.kind}\n\n{graph}\n\n->\n\n{after.graph}\n"


@EACH_RULE
def test_the_program_after_a_rule_is_the_expected_one(rule: Rule) -> None:
    assert program(rule) == (GOLDENS / f"{rule.name}.txt").read_text(), (
        "run `python -m tests.compiler.rewrite.test_rules` to update"
    )


@EACH_RULE
def test_numbers_of_expected_programs_are_exact_in_any_order_of_summing(rule: Rule) -> None:
    assert sums_are_exact(LEFT[rule.name](Sketch(1, in_eighths=True)))


def test_there_is_no_expected_program_without_its_rule() -> None:
    assert {path.stem for path in GOLDENS.iterdir()} == {rule.name for rule in RULES}


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for each in RULES:
        (GOLDENS / f"{each.name}.txt").write_text(program(each))
    sys.exit()
