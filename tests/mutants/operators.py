"""What may be changed in a Python source.

Each change breaks the meaning of one place and leaves a program that still compiles.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: (r"in\b", "not in"),
    ast.NotIn: (r"not\s+in\b", "in"),
    ast.Is: (r"is\b", "is not"),
    ast.IsNot: (r"is\s+not\b", "is"),
}
"""By operator of a comparison: how it is written (a regular expression), and what takes its place."""


@dataclass(frozen=True, order=True)
class Change:
    """Characters [begin, end) of a source become `new`; `about` names the operator."""

    begin: int
    end: int
    new: str
    about: str

    def applied(self, text: str) -> str:
        return text[: self.begin] + self.new + text[self.end :]


def changes(text: str) -> list[Change]:
    """All changes of a Python source, in its order; none of annotations and docstrings. Raises SyntaxError."""
    return [change for change in drafts(text) if compiles(change.applied(text))]


def drafts(text: str) -> list[Change]:
    """The same with those that leave no program."""
    source = _Source(text)
    return sorted({change for node in _judged(ast.parse(text)) for change in source.changes(node)})


def compiles(text: str) -> bool:
    """Whether a text is a program in Python."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _judged(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that run: no annotations, no default of a name that only types are made of."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _judged(child)


@dataclass(frozen=True)
class _Source:
    text: str

    @cached_property
    def _lines(self) -> list[tuple[int, bytes]]:
        """Of each line the position of its first character, and its bytes, in which the parser counts columns."""
        found, at = [], 0
        for line in self.text.splitlines(keepends=True):
            found.append((at, line.encode()))
            at += len(line)
        return found

    def _position(self, line: int, column: int) -> int:
        at, octets = self._lines[line - 1]
        return at + len(octets[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The characters of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._position(node.lineno, node.col_offset), self._position(node.end_lineno, node.end_col_offset)

    def changes(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._flipped(node)
            case ast.Call(func=ast.Name(id="all" | "any" as name) as function):
                begin, end = self.span(function)
                other = "any" if name == "all" else "all"
                yield Change(begin, end, other, f"{name} -> {other}")
            case ast.BoolOp():
                yield from self._joined(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                begin, end = self.span(node)
                inner = slice(*self.span(operand))
                yield Change(begin, end, f"bool({self.text[inner]})", "not dropped")
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                begin, end = self.span(node)
                yield Change(begin, end, str(number + 1), f"{number} -> {number + 1}")
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                yield from self._signed(node)
            case ast.Return(value=ast.expr()) | ast.Raise():
                begin, end = self.span(node)
                yield Change(begin, end, "pass", "return dropped" if isinstance(node, ast.Return) else "raise dropped")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                begin, end = self.span(test)
                yield Change(begin, end, f"(not ({self.text[begin:end]}))", "condition negated")

    def _between(self, one: ast.expr, other: ast.expr, pattern: str, new: str, about: str) -> Iterator[Change]:
        """The one operator between two operands, which brackets and comments may surround."""
        begin, end = self.span(one)[1], self.span(other)[0]
        found = [*re.finditer(pattern, re.sub(r"#[^\n]*", lambda gone: " " * len(gone[0]), self.text[begin:end]))]
        if len(found) == 1:
            yield Change(begin + found[0].start(), begin + found[0].end(), new, about)

    def _flipped(self, node: ast.Compare) -> Iterator[Change]:
        operands = [node.left, *node.comparators]
        for one, operator, other in zip(operands, node.ops, operands[1:], strict=False):
            pattern, new = FLIPPED[type(operator)]
            yield from self._between(one, other, pattern, new, f"comparison becomes {new}")

    def _joined(self, node: ast.BoolOp) -> Iterator[Change]:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for one, other in zip(node.values, node.values[1:], strict=False):
            yield from self._between(one, other, rf"\b{old}\b", new, f"{old} -> {new}")

    def _signed(self, node: ast.BinOp) -> Iterator[Change]:
        old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
        if isinstance(node.left, ast.Constant | ast.JoinedStr) and not _is_number(node.left):
            return  # texts have no difference
        yield from self._between(node.left, node.right, re.escape(old), new, f"{old} -> {new}")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
