"""Rearrangements of pixels that exporters write out: depth to space and back, channel shuffles."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
