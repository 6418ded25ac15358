"""What a compilation leaves out on request: rules of rewriting, and steps of fusion, to see what they are worth or which one is at fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.errors import OptionsError
from compiler.fuse import STEPS
from compiler.rewrite import Rule
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES


@dataclass(frozen=True)
class Remaining:
    """What is left: rules and choices in their order, and the steps of fusion that are *not* taken."""

    rules: tuple[Rule, ...]
    choices: tuple[Rule, ...]
    without_steps: frozenset[str]


def families() -> tuple[str, ...]:
    """Subjects of rules and of choices, each once, in the order in which they are tried."""
    return tuple(dict.fromkeys(rule.family for rule in (*RULES, *CHOICES)))


def known() -> frozenset[str]:
    """All names that mean something."""
    return frozenset((*families(), *STEPS, *(rule.name for rule in (*RULES, *CHOICES))))


def remaining(without: Sequence[str]) -> Remaining:
    """Everything but what is named: a name stands for all rules of a subject, for one rule, for a step of fusion, or for each that has it.

    Raises OptionsError for a name that nothing has.
    """
    names = frozenset(without)
    if unknown := sorted(names - known()):
        rules = [rule.name for rule in (*RULES, *CHOICES)]
        raise OptionsError(
            f"without names {unknown[0]!r}, which is neither a rule nor a step of fusion",
            fix=f"use steps of fusion ({', '.join(STEPS)}), families of rules ({', '.join(families())}), or single rules ({', '.join(rules)})",
        )
    return Remaining(_others(RULES, names), _others(CHOICES, names), names & {*STEPS})


def _others(rules: Iterable[Rule], names: frozenset[str]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if not names & {rule.family, rule.name})
