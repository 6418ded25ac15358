"""Transposes moved towards each other, until they cancel or are absorbed."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
