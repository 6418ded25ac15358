"""Passes that a compilation does without on request: rules of rewriting and of scheduling, and steps of fusion.

So one sees what a pass is worth, or which one is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compiler.errors import OptionsError
from compiler.fuse import STEPS
from compiler.rewrite import Rule
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES
from compiler.schedule import SCHEDULING


@dataclass(frozen=True)
class EnabledPasses:
    """Rules and choices that are applied, in their order.

    And what is *not*: the steps of fusion and the rules of scheduling that were named.
    """

    rules: tuple[Rule, ...]
    choices: tuple[Rule, ...]
    without_steps: frozenset[str]

    def also_without(self, step: str) -> EnabledPasses:
        """The same without a step of fusion."""
        return replace(self, without_steps=self.without_steps | {step})


def families() -> tuple[str, ...]:
    """Subjects of rules and of choices, each once, in the order in which they are tried."""
    return tuple(dict.fromkeys(rule.family for rule in (*RULES, *CHOICES)))


def known() -> frozenset[str]:
    """All names of rules, of their families, of steps of fusion and of rules of scheduling."""
    return frozenset((*families(), *STEPS, *SCHEDULING, *(rule.name for rule in (*RULES, *CHOICES))))


def enabled_passes(without: Sequence[str]) -> EnabledPasses:
    """Everything but what is named.

    A name stands for all rules of a subject, for one rule, for a step of fusion, a rule of scheduling, or for each of
    these that has it.
    Raises OptionsError for a name that nothing has.
    """
    names = frozenset(without)
    if unknown := sorted(names - known()):
        rules = [rule.name for rule in (*RULES, *CHOICES)]
        raise OptionsError(
            f"without names {unknown[0]!r}, which is neither a rule nor a step of fusion",
            fix=f"use steps of fusion ({', '.join(STEPS)}), rules of scheduling ({', '.join(SCHEDULING)}), "
            f"families of rules ({', '.join(families())}), "
            f"or single rules ({', '.join(rules)})",
        )
    return EnabledPasses(_others(RULES, names), _others(CHOICES, names), names & {*STEPS, *SCHEDULING})


def _others(rules: Iterable[Rule], names: frozenset[str]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if not names & {rule.family, rule.name})
