"""Attention written out: masks, scales and repeated heads brought into the form that fusion joins."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
