"""Convolutions of convolutions, and those with many groups."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
