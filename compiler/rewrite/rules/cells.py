"""LSTM and GRU cells that exporters write out step by step."""

from compiler.rewrite.rule import Rule

RULES: tuple[Rule, ...] = ()
