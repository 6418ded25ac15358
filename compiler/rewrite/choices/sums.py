"""Sums of convolutions and of pools made one operator."""

from compiler.rewrite.rule import Rule

CHOICES: tuple[Rule, ...] = ()
