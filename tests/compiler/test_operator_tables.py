"""What an operator is stands in its record: no module elsewhere lists operators to say it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx.defs

ROOT = Path(__file__).parents[2]
PACKAGES = ("compiler", "worker", "service", "bench")
MANY = 4
"""Names from which on a literal is a table; a rule that matches two or three operators names them."""

ALLOWED = {
    ("bench/edge/run.py", "ACTIVATIONS"): "which activations networks are measured with",
    ("bench/quantized.py", "FROM_BYTES"): "layers that multiply bytes, as each engine's profile names them",
    ("bench/rewrite/counts.py", "VIEWS"): "layers by which one peer hands its input on, as that peer's profile shows",
    (
        "compiler/accelerate/tflite/convert.py",
        "floats_without_scale",
    ): "nodes of a QDQ file whose results need no range",
    ("compiler/compress/layers.py", "PATHS"): "what may stand between a model's ends and its first and last layers",
    ("compiler/frontend/opsets/table.py", "UPGRADES"): "the history of opsets: what brings an older form to the newest",
    ("compiler/frontend/opsets/table.py", "_REDUCTIONS_18"): "the history of opsets: whose axes became an input in 18",
    (
        "compiler/fuse/layouts/channels_last.py",
        "UNTIED",
    ): "which operators gain nothing from channels innermost, though their axes stay",
    ("compiler/frontend/opsets/six.py", "BROADCASTING"): "what opset 7 changed in one way",
    ("compiler/frontend/opsets/six.py", "OPSET_SIX"): "what opset 7 changed, each with its rule",
    ("compiler/frontend/reading/strings.py", "MAKING"): "what the loader carries out, and becomes no node",
    ("compiler/frontend/ragged/packing.py", "NEUTRAL"): "by which number the rule leaves out the tokens of other texts",
    ("compiler/frontend/ragged/packing.py", "KEEPING"): "maps that stand between a softmax and its product",
    (
        "compiler/frontend/control/sequences.py",
        "PASSING",
    ): "what takes a sequence where it takes a tensor, and becomes no node",
    ("compiler/legalise/errors.py", "ONE"): "whose Lipschitz constant in the greatest norm is 1",
    ("compiler/legalise/ranges.py", "KEEPS"): "whose results stay in the interval of the first input",
    ("compiler/legalise/rules/layers.py", "MAPS"): "what one rule applies to",
    ("compiler/legalise/rules/layers.py", "RULES"): "what each rule applies to",
    ("compiler/legalise/rules/pieces.py", "PARAMETERS"): "how many inputs a node lists that rules write",
    ("compiler/rewrite/measure.py", "WEIGHTS"): "the measure by which rewriting ends",
    ("compiler/rewrite/measure.py", "PRODUCTS"): "the measure by which rewriting ends",
    ("compiler/rewrite/rules/attention.py", "MAPS"): "scales and masks, the maps that the fused form has a place for",
    ("compiler/rewrite/rules/activations.py", "RULES"): "the last operator of the terms that one rule matches",
    ("compiler/rewrite/rules/demand.py", "PARTS"): "what one function of the rule knows to cut",
    ("compiler/rewrite/rules/identities.py", "RULES"): "the last operator of the terms that one rule matches",
    ("compiler/rewrite/rules/passing.py", "DOWNWARDS"): "operators for which the rule knows what becomes of a scale",
}
"""Tables that say no fact about operators, by file and name, with what they say."""


def names_in(node: ast.expr, operators: frozenset[str]) -> list[str]:
    """Operators that stand in a literal, in what it unpacks as well.

    Of a dictionary its keys, unless it maps them to functions.
    """
    match node:
        case ast.Constant(value=str(name)) if name in operators:
            return [name]
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return [name for item in items for name in names_in(item, operators)]
        case ast.Starred(value=inner):
            return names_in(inner, operators)
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple" | "list"), args=[inner]):
            return names_in(inner, operators)
        case ast.Call(func=ast.Attribute(attr="split"), args=[]) as call:
            assert isinstance(call.func, ast.Attribute)
            text = call.func.value
            return [w for w in str(getattr(text, "value", "")).split() if w in operators]
        case ast.BinOp(left=left, right=right):
            return [*names_in(left, operators), *names_in(right, operators)]
        case ast.Dict(keys=keys, values=values):
            found = []
            for key, value in zip(keys, values, strict=True):
                if key is not None and isinstance(value, ast.Constant):
                    found += names_in(key, operators)
                if key is None and isinstance(value, ast.Call) and value.args:  # **dict.fromkeys(names, what)
                    found += names_in(value.args[0], operators)
            return found
    return []


def tables(source: str, operators: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    """Name of the module's binding, or function, and operators of each outermost literal with MANY of them."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=where), *_]) | ast.AnnAssign(target=ast.Name(id=where)):
                pass
            case ast.FunctionDef(name=where) | ast.ClassDef(name=where):
                pass
            case _:
                where = ""
        waiting: list[ast.AST] = [statement]
        while waiting:
            node = waiting.pop()
            found = names_in(node, operators) if isinstance(node, ast.expr) else []
            if len(set(found)) >= MANY:
                yield where, found
            else:
                waiting += ast.iter_child_nodes(node)


def operators_of_onnx() -> frozenset[str]:
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas())


def test_no_module_outside_ops_lists_operators() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 400
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("compiler/ops/"):
            found |= {(name, where): names for where, names in tables(path.read_text(), operators_of_onnx())}
    new = {key: names for key, names in found.items() if key not in ALLOWED}
    assert not new, f"make these traits (compiler/ops/traits.py), or say in ALLOWED what they are instead: {new}"
    assert set(ALLOWED) <= set(found), f"no longer there: {sorted(set(ALLOWED) - set(found))}"


def test_tables_are_found_however_they_are_written() -> None:
    operators = frozenset({"Add", "Sub", "Mul", "Div"})
    for source in (
        'A = frozenset({"Add", "Sub", "Mul", "Div"})',
        'A = (*("Add", "Sub"), "Mul", "Div")',
        'A: frozenset[str] = OTHERS | {"Add", "Sub"} | {"Mul", "Div"}',
        'A = {"Add": 1, "Sub": 2, **dict.fromkeys(("Mul", "Div"), 3)}',
        'A = frozenset("Add Sub Mul Div".split())',
    ):
        assert [(where, sorted(names)) for where, names in tables(source, operators)] == [("A", sorted(operators))]
    (inside,) = tables('def f(op):\n    return op in ("Add", "Sub", "Mul", "Div")', operators)
    assert inside[0] == "f"
    assert not list(tables('A = {"Add": f, "Sub": f, "Mul": g, "Div": g}\nB = ("Add", "Sub", "Mul")', operators))
