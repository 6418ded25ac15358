"""Every choice: what it puts in the place of its left side means the same, the program before and after, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler.ir.tensor import DType
from compiler.rewrite import Rule
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.choose import alternatives, each
from compiler.rewrite.rules import RULES
from tests.compiler.rewrite.choices import LEFT, REFUSED
from tests.compiler.rewrite.sketch import Sketch, assert_same_values, sums_are_exact

GOLDENS = Path(__file__).parent / "goldens_of_choices"
INSTANCES = 25
EACH_CHOICE = pytest.mark.parametrize("choice", CHOICES, ids=[choice.name for choice in CHOICES])


def test_every_choice_has_a_name_of_its_own_an_equation_instances_and_a_refusal() -> None:
    names = [choice.name for choice in CHOICES]
    assert len({*names, *(rule.name for rule in RULES)}) == len(names) + len(RULES)
    assert set(names) == set(LEFT) == set(REFUSED)
    assert all("=" in choice.equation for choice in CHOICES)


@EACH_CHOICE
def test_both_sides_of_the_equation_are_equal(choice: Rule) -> None:
    for seed in range(INSTANCES):
        graph = LEFT[choice.name](Sketch(seed, DType.F64))
        others = list(each(graph, (choice,)))
        assert others, graph
        for other in others:
            assert_same_values(graph, other, seed)


@EACH_CHOICE
def test_in_float32_weights_are_rounded_once(choice: Rule) -> None:
    for seed in range(5):
        graph = LEFT[choice.name](Sketch(seed, DType.F32))
        others = list(each(graph, (choice,)))
        assert others, graph
        for other in others:
            assert_same_values(graph, other, seed, rtol=2e-6)


@EACH_CHOICE
def test_where_a_choice_is_not_offered_there_is_a_reason(choice: Rule) -> None:
    drawing, reason = REFUSED[choice.name]
    for seed in range(5):
        offered, refusals = alternatives(drawing(Sketch(seed)), (choice,))
        assert not offered
        assert any(reason in str(refusal) for refusal in refusals) if reason else not refusals


def program(choice: Rule) -> str:
    """The choice's equation, and a program before it and after its first application."""
    graph = LEFT[choice.name](Sketch(1, in_eighths=True))
    return f"{choice.equation}\n{choice.kind}\n\n{graph}\n\n->\n\n{next(each(graph, (choice,)))}\n"


@EACH_CHOICE
def test_the_program_after_a_choice_is_the_expected_one(choice: Rule) -> None:
    assert program(choice) == (GOLDENS / f"{choice.name}.txt").read_text(), (
        "run `python -m tests.compiler.rewrite.test_choices` to update"
    )


@EACH_CHOICE
def test_numbers_of_expected_programs_are_exact_in_any_order_of_summing(choice: Rule) -> None:
    assert sums_are_exact(LEFT[choice.name](Sketch(1, in_eighths=True)))


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for each_choice in CHOICES:
        (GOLDENS / f"{each_choice.name}.txt").write_text(program(each_choice))
    sys.exit()
