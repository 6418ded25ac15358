"""Reductions of reductions, of maps, and of views."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
