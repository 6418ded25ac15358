"""The loader's modules, and the file that they are joined into."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from compiler.errors import InternalError
from compiler.pack.joining import MODULES, PACKAGE, joined, loader_source

FOLDER = Path(__file__).parents[3] / "compiler" / "pack" / "loader"
FIRST = '"""What is first."""\n\nimport os\n\nA = os.sep\n'


def statements(text: str) -> list[str]:
    """Of a module, all but docstring and imports."""
    nodes = ast.parse(text).body
    nodes = nodes[1:] if ast.get_docstring(ast.parse(text)) else nodes
    return [ast.dump(node) for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom)]


def test_the_file_has_the_statements_of_every_module_in_order_and_the_command_beside_them() -> None:
    modules = [statement for name in MODULES for statement in statements((FOLDER / f"{name}.py").read_text())]
    *own, command = statements(loader_source())
    assert own == modules
    assert "__main__" in command


def test_every_module_is_joined() -> None:
    assert Counter(MODULES) == Counter(file.stem for file in FOLDER.glob("*.py") if file.stem != "__init__")


def test_it_is_the_same_for_every_artifact_and_one_can_read_it() -> None:
    text = loader_source()
    assert text == loader_source()
    assert max(map(len, text.splitlines())) <= 120
    assert PACKAGE not in text
    ast.parse(text, feature_version=(3, 10))


def test_the_loader_imports_numpy_and_the_standard_library_alone() -> None:
    tree = ast.parse(loader_source())
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) == {"numpy"}
    assert all(not node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))


def test_imports_are_those_of_all_modules_each_once() -> None:
    second = f'"""Second."""\n\nimport os\nfrom os import path\n\nfrom {PACKAGE}.first import A\n\nB = path.join(A)\n'
    text = joined([FIRST, second])
    above = text[text.index("import os") : text.index("# ---- What is first.")]
    assert above.split("\n") == ["import os", "from os import path", "", ""]
    assert "\n# ---- Second.\n\n\nB = path.join(A)\n" in text


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ("import os\n\nA = 1\n", "define A"),
        ("import os\n\n\ndef A() -> None: ...\n", "define A"),
        (f"from {PACKAGE}.first import B\n\nC = B\n", "define B by this name"),
        (f"from {PACKAGE}.first import A as B\n\nC = B\n", "define A by this name"),
    ],
)
def test_modules_that_would_mean_something_else_in_one_file_are_refused(second: str, reason: str) -> None:
    with pytest.raises(InternalError, match=reason):
        joined([FIRST, second])
