"""Every rule with its left sides: of rewriting, of choices, of legalisation."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.legalise.profile import Profile
from compiler.legalise.rules import RULES as LEGALISATION
from compiler.rewrite import Rule
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES
from tests.compiler.legalise.test_rules import CASES
from tests.compiler.rewrite.choices import LEFT as CHOSEN
from tests.compiler.rewrite.left_sides import LEFT
from tests.proofs.attempt import Drawing
from tests.proofs.drawings import DRAWN
from tests.proofs.instances import redrawn

DRAWS = 3
"""Left sides that are drawn of each rule: it takes another way at some of them."""


@dataclass(frozen=True)
class Subject:
    """A rule, and its left sides: a drawing, its seed, and the profile of an accelerator."""

    rule: Rule
    left: tuple[tuple[Drawing, int, Profile | None], ...]


def _drawn(rule: Rule, drawing: Drawing) -> Subject:
    own = tuple((one, 0, None) for one in DRAWN.get(rule.name, ()))
    return Subject(rule, own or tuple((drawing, seed, None) for seed in range(DRAWS)))


def _rewriting() -> list[Subject]:
    return [
        *(_drawn(rule, LEFT[rule.name]) for rule in RULES),
        *(_drawn(rule, CHOSEN[rule.name]) for rule in CHOICES),
    ]


def _legalisation() -> list[Subject]:
    return [
        Subject(rule, tuple((redrawn(graph), 0, profile) for graph, profile in CASES[rule.name][:DRAWS]))
        for rule in LEGALISATION
    ]


SUBJECTS = {subject.rule.name: subject for subject in (*_rewriting(), *_legalisation())}
"""By name."""
