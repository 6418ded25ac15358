"""Choices: programs that compute the same with other operators, of which costs say which is the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.ir.graph import Graph, Node
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.program import Program
from compiler.rewrite.rule import Rule
from compiler.rewrite.view import No, Rewrite


@dataclass(frozen=True)
class Alternative:
    """A choice that could be made at a node of a program."""

    rule: Rule
    node: Node
    rewrite: Rewrite


def alternatives(graph: Graph, choices: Sequence[Rule] = CHOICES) -> tuple[list[Alternative], list[str]]:
    """Every choice that a program offers, in program order, and why others do not: each by itself, on the program as it is."""
    view = Program(graph)
    found: list[Alternative] = []
    refusals: list[str] = []
    for key in view.ordered():
        node = view.made_by[key]
        for rule in choices:
            if rule.ops and node.op not in rule.ops:
                continue
            answer = rule.match(view, node)
            if isinstance(answer, Rewrite):
                found.append(Alternative(rule, node, answer))
            elif isinstance(answer, No):
                refusals.append(f"{rule.name} at {node.source!r}: {answer.reason}")
    return found, refusals


def applied(graph: Graph, alternatives: Sequence[Alternative]) -> Graph:
    """The program with choices made that do not touch each other's nodes."""
    program = Program(graph)
    for one in alternatives:
        program.apply(one.node, one.rewrite)
    return program.graph()


def each(graph: Graph, choices: Sequence[Rule] = CHOICES) -> Iterator[Graph]:
    """The program with each choice made by itself."""
    for one in alternatives(graph, choices)[0]:
        yield applied(graph, [one])
