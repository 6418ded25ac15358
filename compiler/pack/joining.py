"""The loader's modules joined into the one file that every artifact carries."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from compiler.errors import InternalError

MODULES = (
    "errors",
    "specs",
    "bindings",
    "strings",
    "outside",
    "interface",
    "profiles",
    "checked",
    "files",
    "library",
    "arrays",
    "gpu",
    "ports",
    "drawing",
    "timing",
    "frames",
    "capacity",
    "quick",
    "states",
    "program",
    "probe",
    "shown",
    "texts",
    "chunks",
    "model",
    "command",
)
"""Of `compiler/pack/loader`, in the order in which they stand in the file: what one imports is before it."""
PACKAGE = "compiler.pack.loader"
_HEAD = '''"""Runs a Tilewright artifact. One file; needs Python 3.10 or newer and numpy.

    python loader.py [--bench] [--profile] [--json] [MODEL.tw]

    from loader import Model
    with Model("model.tw") as model:
        outputs = model.run({"x": array})

MODEL.tw may also be the folder that the archive was extracted to; without it, it is where this file lies.
`python MODEL.tw` does the same as `python loader.py MODEL.tw`. Every file is checked against the SHA-256 in
manifest.json before it is used.
"""

from __future__ import annotations
'''
_END = """if __name__ == "__main__":
    raise SystemExit(main())
"""


@functools.cache
def loader_source() -> str:
    """The text of loader.py."""
    return joined([(files(PACKAGE) / f"{name}.py").read_text("utf-8") for name in MODULES])


def joined(modules: Sequence[str]) -> str:
    """One file of modules of PACKAGE, each under its docstring as a comment, with the imports of all before them.

    Raises InternalError where that would not mean the same: for a name that two modules define, or an import of
    another's that is no name from a module before it.
    """
    imports: dict[str, set[str]] = {}
    defined: set[str] = set()
    bodies = []
    for text in modules:
        tree = ast.parse(text)
        above = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in above:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.startswith(PACKAGE):
                _check(module, node.names, defined)
            elif module != "__future__":
                imports.setdefault(module, set()).update(map(ast.unparse, node.names))
        own = [name for node in tree.body for name in _defined(node)]
        if twice := defined.intersection(own):
            raise InternalError(f"two modules of the loader define {', '.join(sorted(twice))}")
        defined.update(own)
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        bodies.append(f"# ---- {summary}\n\n\n{_after(text, above[-1])}\n")
    return "\n\n".join([f"{_HEAD}\n{_import_lines(imports)}", *bodies, _END])


def _import_lines(imports: Mapping[str, set[str]]) -> str:
    """Names of each module, under "" modules themselves, as lines: Python's own, then the others."""
    lines = [(name, f"import {name}") for name in sorted(imports.get("", ()))]
    for module in sorted(set(imports) - {""}):
        lines.append((module, f"from {module} import {', '.join(sorted(imports[module]))}"))
    own = [line for name, line in lines if name.partition(".")[0] in sys.stdlib_module_names]
    others = [line for name, line in lines if line not in own]
    return "\n".join([*own, *([""] if others else []), *others])


def _check(module: str, names: Sequence[ast.alias], defined: set[str]) -> None:
    """Raises InternalError unless an import of another module's names is of some that are defined already."""
    missing = [one.name for one in names if one.name not in defined or one.asname]
    if missing:
        raise InternalError(f"{module} is no module before, or does not define {', '.join(missing)} by this name")


def _defined(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _after(text: str, last: ast.stmt) -> str:
    """What follows the last of a module's imports."""
    return "\n".join(text.splitlines()[last.end_lineno or 0 :]).strip("\n")
