"""Tests that could pass without having asserted anything.

Their assertions all stand in loops over what may be empty, or under a condition in a loop.

Such a test says in one more assertion, outside of these, that it found something to judge.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOMS = ("compiler", "cuda_double", "mutants")
THROUGH = {"enumerate", "list", "tuple", "sorted", "reversed", "set"}
"""Functions whose result is empty exactly where their argument is."""
FILLED = {"range", "draws", "drawn", "points", "product", "permutations", "combinations", "ndindex"}
"""Functions that tests call for a number of things that they state."""
ASSERTING = ("assert", "check", "verify", "judge", "agree", "compare", "refuse", "expect", "fail")
"""How the names of functions begin that raise where something is wrong."""


def asserts(statement: ast.stmt) -> bool:
    """Whether a statement by itself can fail a test."""
    match statement:
        case ast.Assert():
            return True
        case ast.With(items=items):
            return any(_name(item.context_expr) in ("raises", "warns", "deprecated_call") for item in items)
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
            return _name(call).lstrip("_").startswith(ASSERTING)
    return False


def may_be_empty(over: ast.expr) -> bool:
    """Whether a loop over this may never run: what some function of ours gives, or a part of it."""
    match over:
        case ast.Subscript(value=value):
            return may_be_empty(value)
        case ast.Call(func=ast.Name(id="zip"), args=arguments):
            return all(map(may_be_empty, arguments))
        case ast.Call(args=[argument, *_]) if _name(over) in THROUGH:
            return may_be_empty(argument)
        case ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys")):
            return may_be_empty(value)
        case ast.Call():
            return _name(over) not in FILLED
    return False


def certain(statements: Iterable[ast.stmt], in_loop: bool = False) -> bool:
    """Whether one of the statements asserts something whenever they run.

    A condition outside of loops is one on parameters of the test, of which some meet it.
    """
    for statement in statements:
        if asserts(statement):
            return True
        match statement:
            case ast.For(iter=over, body=body):
                if not may_be_empty(over) and certain(body, True):
                    return True
            case ast.If(body=body, orelse=other):
                branches = [certain(branch, in_loop) for branch in (body, other)]
                if all(branches) or (not in_loop and any(branches)):
                    return True
            case ast.Try(body=body, handlers=handlers):
                if certain(body, in_loop) or (not in_loop and any(certain(one.body) for one in handlers)):
                    return True
            case ast.With(body=body) | ast.While(body=body):
                if certain(body, in_loop):
                    return True
            case ast.Match(cases=cases):
                if all(certain(case.body, in_loop) for case in cases):
                    return True
    return False


def _name(node: ast.expr) -> str:
    """The last part of a called function's name."""
    match node:
        case ast.Call(func=function):
            return _name(function)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def uncertain(source: str) -> list[tuple[int, str]]:
    """Line and name of each test function whose assertions may all be passed by."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    tests = [function for function in functions if function.name.startswith("test_")]
    return [
        (test.lineno, test.name)
        for test in tests
        if any(asserts(one) for one in ast.walk(test) if isinstance(one, ast.stmt)) and not certain(test.body)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_every_test_asserts_something(room: str) -> None:
    files = sorted((TESTS / room).rglob("test_*.py"))
    assert files
    reported = [
        f"{file.relative_to(TESTS)}:{line} {name}" for file in files for line, name in uncertain(file.read_text())
    ]
    assert not reported, "say in an assertion outside of loops and conditions that there was something to judge"


@pytest.mark.parametrize(
    ("body", "is_certain"),
    [
        ("for x in found():\n  assert x", False),
        ("for x in found()[1:]:\n  assert x", False),
        ("for at, x in enumerate(found()):\n  assert x", False),
        ("for a, b in zip(found(), others(), strict=True):\n  assert a == b", False),
        ("for a in (1, 2):\n  for x in found():\n    assert x", False),
        ("for x in (1, 2):\n  if f(x):\n    assert x", False),
        ("for a, b in found().items():\n  with pytest.raises(E):\n    f()", False),
        ("for x in (1, 2):\n  assert x", True),
        ("for x in range(3):\n  if f(x):\n    assert x\n  else:\n    check(x)", True),
        ("one = found()\nassert one\nfor x in one:\n  assert x", True),
        ("if name:\n  assert f()", True),
        ("for a, b in zip(found(), (1, 2), strict=True):\n  assert a == b", True),
        ("with pytest.raises(E):\n  f()", True),
        ("f()", True),
    ],
)
def test_which_tests_may_pass_without_an_assertion(body: str, is_certain: bool) -> None:
    source = "def test_it():\n" + "".join(f"  {line}\n" for line in body.splitlines())
    assert uncertain(source) == ([] if is_certain else [(1, "test_it")])
