"""Operators of the same input made one: wider weights, results cut out of what they give."""

from compiler.rewrite.rule import Rule

CHOICES: tuple[Rule, ...] = ()
