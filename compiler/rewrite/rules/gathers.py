"""Gathers whose indices are known."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
