from __future__ import annotations

import pytest

from compiler.fuse.refusal import Refusal as Apart
from compiler.ir.tile import Cost
from compiler.pack.explanation import Explanation
from compiler.rewrite import Application, Refusal
from compiler.rewrite.choose import Decision
from compiler.rewrite.gain import Work
from compiler.rewrite.rules import RULES
from compiler.steps.explain import explain, general


def applied(rule: str, where: str, gain: Work = Work(1)) -> Application:  # noqa: B008 it is frozen
    return Application(rule, where, f"what happened at {where}", "exact", gain)


def test_a_rule_is_told_once_with_its_equation_and_all_that_it_saved() -> None:
    log = [applied("batch_norm_into_weights", f"'n{at}'", Work(1, 1000, 4000)) for at in range(3)]
    (entry,) = explain(log, (), ()).applied
    equation = next(rule.equation for rule in RULES if rule.name == "batch_norm_into_weights")
    assert (entry.what, entry.why) == ("batch_norm_into_weights (exact)", equation)
    assert (entry.count, entry.where, entry.note) == (3, "'n0'", "saves 3 nodes, 3 kop, 12 kB")


def test_what_no_rule_stands_for_is_told_by_its_reason() -> None:
    log = [applied("dead_node", "'a'"), applied("dead_node", "'b'")]
    (entry,) = explain(log, (), ()).applied
    assert (entry.why, entry.count) == ("what happened at …", 2)
    (alone,) = explain(log[:1], (), ()).applied
    assert alone.why == "what happened at 'a'"


def test_who_saves_most_operations_comes_first() -> None:
    log = [applied("one", "'a'", Work(1, 0, 8)), applied("two", "'b'", Work(1, 5, 0)), applied("three", "'c'", Work(2))]
    assert [entry.what for entry in explain(log, (), ()).applied] == ["two (exact)", "one (exact)", "three (exact)"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("%12 is also read by Conv %13", "%4 is also read by Conv %7"),
        ("it computes what 'node.a' does", "it computes what 'node b%3' does"),
        ("its 12 units of work would be done 2.5 times", "its 3 units of work would be done 1e+03 times"),
        ("the bound 1e-09 is above", "the bound 2 is above"),
    ],
)
def test_reasons_that_differ_in_names_and_numbers_alone_are_one(one: str, other: str) -> None:
    assert general(one) == general(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("%1 is also read by Conv %2", "%1 is also read by Add %2"),
        ("it needs Conv1d", "it needs Conv2d"),
        ("the operator's result is one thing", "the operator's result is another's"),
    ],
)
def test_reasons_that_differ_in_words_are_two(one: str, other: str) -> None:
    assert general(one) != general(other)


def test_refusals_are_counted_by_rule_and_reason_the_most_frequent_first() -> None:
    refused = [Refusal("fold", f"'n{at}'", f"%{at} is a graph output") for at in range(2)]
    refused += [Refusal("fold", "'m'", "too large"), *(Refusal("melt", f"'x{at}'", "too large") for at in range(3))]
    reported = [(entry.what, entry.why, entry.count, entry.where) for entry in explain((), refused, ()).refused]
    assert reported == [
        ("melt", "too large", 3, "'x0'"),
        ("fold", "… is a graph output", 2, "'n0'"),
        ("fold", "too large", 1, "'m'"),
    ]


def test_kernels_left_apart_are_counted_by_step_with_one_pair() -> None:
    apart = [
        Apart("inline", "Sigmoid -> MaxPool", "'p'", "done 2.0 times", 7),
        Apart("inline", "Exp -> Conv", "'c'", "done 9 times", 8),
    ]
    (entry,) = explain((), (), apart).apart
    assert (entry.what, entry.why, entry.count, entry.where) == ("inline", "done … times", 2, "'p': Sigmoid -> MaxPool")


def test_choices_are_told_with_the_costs_that_decided() -> None:
    def evaluated(where: str, before: float, after: float, reason: str = "") -> Decision:
        return Decision("merge", where, f"{where} are one", Cost(before, "record"), Cost(after, "record"), reason)

    reported = explain(
        (),
        (),
        (),
        [
            evaluated("'a'", 3e-6, 2e-6),
            evaluated("'b'", 5e-6, 3e-6),
            evaluated("'c'", 2e-6, 4e-6, "it takes 2.00 times as long"),
            evaluated("'d'", 2e-6, 6e-6, "it takes 3.00 times as long"),
        ],
    )
    (taken,), (left,) = reported.taken, reported.left
    assert (taken.what, taken.count, taken.where, taken.why) == ("merge", 2, "'a'", "… are one")
    assert taken.note == "8.0 us without, 5.0 us with it, measured"
    assert (left.count, left.why) == (2, "it takes … times as long")
    assert left.note == "4.0 us without, 10.0 us with it, measured"


def test_the_text_has_a_section_for_each_list_that_is_not_empty() -> None:
    text = str(explain([applied("fold", "'a'")], [Refusal("melt", "'b'", "too large")], ()))
    assert (
        "Rules applied (1)\n    1 x fold (exact): what happened at 'a'\n        saves 1 node\n        such as at 'a'"
        in text
    )
    assert "Rules refused, and why (1)\n    1 x melt: too large" in text
    assert "apart" not in text
    assert str(Explanation()) == ""
