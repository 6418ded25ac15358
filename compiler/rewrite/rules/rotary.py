"""Rotary position embedding written out."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
