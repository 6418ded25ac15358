"""Rules as they run, shown by a solver: a sample of them here, all by `make prove-rules`."""

from __future__ import annotations

import random
from collections import Counter

from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES
from tests.proofs.attempt import attempt
from tests.proofs.catalogue import SUBJECTS
from tests.proofs.instances import LITERAL
from tests.proofs.kept import NOT, SIZES, WINDOWS, kept
from tests.proofs.mistakes import MISTAKES, Mistake, changed, example_of
from tests.proofs.reasons import REASONS
from tests.seeds import each

SAMPLE = random.Random(46).sample(sorted(name for name, state in kept().items() if state.level == SIZES), 12)
"""Rules that are proved again here."""


def test_every_rule_has_a_proof_or_a_reason() -> None:
    states = kept()
    assert list(states) == list(SUBJECTS), "run `python -m tests.proofs --write`"
    assert all(state.shown == state.of > 0 for state in states.values() if state.level != NOT)
    assert all(state.reason for state in states.values() if state.level == NOT)
    assert {state.level for state in states.values()} == {SIZES, WINDOWS, NOT}


def test_at_least_110_rules_of_rewriting_are_proved_and_no_reason_is_given_for_one_that_is() -> None:
    states = kept()
    of_rewriting = [states[rule.name] for rule in (*RULES, *CHOICES)]
    assert sum(state.level != NOT for state in of_rewriting) >= 110, Counter(s.level for s in of_rewriting)
    assert all(states[name].level == NOT for name in REASONS)


@each(SAMPLE, name="rule")
def test_a_sample_is_proved_again(rule: str) -> None:
    print(rule)
    subject = SUBJECTS[rule]
    drawing, seed, profile = subject.left[0]
    assert attempt(subject.rule, drawing, seed, LITERAL[0], profile).how


def test_there_are_twenty_mistakes_each_in_one_place() -> None:
    assert len(MISTAKES) >= 20
    assert len(set(MISTAKES)) == len(MISTAKES)
    assert all(changed(mistake).name == mistake.rule for mistake in MISTAKES)


@each(random.Random(46).sample(MISTAKES, 6), name="mistake")
def test_the_solver_finds_an_example_of_a_mistake(mistake: Mistake) -> None:
    print(mistake.rule, mistake.what)
    example = example_of(mistake)
    assert example is not None
    assert " before, " in example


@each(("relu_of_relu", "slice_of_slice", "transpose_of_transpose"), name="rule")
def test_of_a_right_rule_the_solver_finds_no_example(rule: str) -> None:
    begin = f"def {rule}("
    assert example_of(Mistake(rule, "none", begin, begin)) is None
