"""`python -m tests.sizes`: prints lines of Python by package; fails where a file, a function or a folder is too large.

The limits are those of docs/contributing.md. The table is kept in docs/architecture.md, and fails where it is more than
OFF wrong; `--write` brings it up to date. Cyclomatic complexity is ruff's to check.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("tilewright", "compiler", "service", "worker", "migrations", "bench")
TESTS = "tests"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- sizes: written by `python -m tests.sizes --write` -->", "<!-- end of sizes -->"
OFF = 0.05
"""How much a row of the page may differ from what is counted, of what is counted."""
LISTED = 3000
"""Lines of a room that has a row of its own."""
DEEP = ("compiler/devices",)
"""Rooms whose packages have rows too."""

MAX_LINES = 600
"""Of a file."""
MAX_PARAMETERS = 7
"""Of a function, `self` apart, and apart from those that a call can only name and may leave out."""
MAX_MODULES = 25
"""Of a folder, `__init__.py` apart."""
MAX_EXCEPTIONS = 20
"""Of functions with more parameters."""

DECLARED = ("tilewright/cli/", "service/http/routes/")
"""Here a parameter is an option of a command, or a field of a request, and no code of ours calls the function."""
LARGE_FOLDERS = {
    "bench/zoo": "one module for each family of networks",
    "compiler/devices/cpu/algorithms": "one module for each algorithm",
    "compiler/forms": "one module for each form",
    "compiler/ops": "one module for each group of operators",
    "compiler/rewrite/rules": "one module for each group of rules",
    "compiler/pack/loader": "one module for each subject of the one file that they make",
    "service/db": "one module for each group of tables",
    "service/http/routes": "one module for each resource",
    "tilewright": "what users import from",
    "tilewright/cli": "one module for each command",
}
"""Folders of more modules than a reader surveys, each with its reason."""
LONG_FILES = {
    "tests/compiler/steps/states/test_proof.py": "one compiled artifact serves all its tests",
    "tests/compiler/steps/dividing/test_step.py": "three compiled artifacts serve all its tests",
    "tests/cuda_double/test_intrinsics.py": "one compiled module serves all its tests",
}
"""Files of more lines than one reads in a sitting, each with its reason."""
MANY_PARAMETERS = {
    "compiler/accelerate/tflite/flatbuffer.py::TfliteWriter._tensor": "the fields of a table in the file format",
    "compiler/accelerate/tosa/moves.py::_resized": "the operands of TOSA's RESIZE, and its result",
    "compiler/devices/cpu/products/window/tiles.py::_tile": "extents of a tile, and what they are for",
    "compiler/devices/cpu/emit/program.py::_programs": "what `emit` and `emit_each` are given, once for both",
    "compiler/devices/cpu/measure/operands.py::lay_out": "a kernel in parts: callers have no workload for regions",
    "compiler/devices/cuda/algorithms/window/tiles.py::_seconds": "extents of a tile, and what costs them",
    "compiler/devices/cuda/algorithms/window/tiles.py::_split_seconds": "extents of a tile, and what costs them",
    "compiler/frontend/expansions/ml/packed.py::packed": "attributes of ONNX's tree ensembles, all of a node",
    "compiler/knowledge/making.py::record_of": "the fields of a record",
    "compiler/knowledge/making.py::stage_record": "the fields of a record",
    "compiler/knowledge/making.py::stages_marker": "the fields of a record",
    "compiler/tuning/shared.py::share": "what a search knows, all of it from different owners",
    "service/http/requests/model_changes.py::changing.change_model": "a route: fields of a request",
    "service/http/responses/download.py::blob_response": "fields of an answer, all named by callers",
    "worker/processes/group.py::_popen": "descriptors, all named by the one caller",
}
"""Functions, as `file::name`, each with its reason."""


def sources(*packages: str) -> Iterator[Path]:
    """Files of Python in packages, in order."""
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def name_of(file: Path) -> str:
    """Its path in the checkout."""
    return file.relative_to(ROOT).as_posix()


def sizes() -> dict[str, int]:
    """Lines of Python by package: each package, its rooms of at least LISTED lines, and packages of the DEEP rooms."""
    counted: Counter[str] = Counter()
    for file in sources(*PACKAGES, TESTS):
        lines = len(file.read_text().splitlines())
        folders = file.relative_to(ROOT).parts[:-1]
        for depth in range(1, 1 + len(folders)):
            counted["/".join(folders[:depth])] += lines

    def has_row(name: str) -> bool:
        above = name.rpartition("/")[0]
        return not above or (counted[name] >= LISTED and (above in DEEP or "/" not in above))

    return {name: counted[name] for name in sorted(counted) if has_row(name)}


def table(rows: Mapping[str, int]) -> str:
    """The rows in Markdown; a package's row counts its rooms too."""
    lines = ["| package | lines |", "|---|---:|", *(f"| `{name}` | {count:,} |" for name, count in rows.items())]
    return "\n".join(lines)


def kept(page: str) -> dict[str, int]:
    """The rows that a page has between BEGIN and END."""
    text = page.partition(BEGIN)[2].partition(END)[0]
    return {name: int(count.replace(",", "")) for name, count in re.findall(r"^\| `(\S+)` \| ([\d,]+) \|$", text, re.M)}


def written(page: str, rows: Mapping[str, int]) -> str:
    """The page with the rows between BEGIN and END."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}"


def stale(rows: Mapping[str, int], page: Mapping[str, int]) -> list[str]:
    """Rows of the page that are more than OFF wrong, and rooms well above LISTED that it does not have."""
    wrong = [
        f"{PAGE.name}: `{name}` has {count:,} lines there and {rows.get(name, 0):,} in truth"
        for name, count in page.items()
        if abs(rows.get(name, 0) - count) > OFF * max(count, rows.get(name, 0))
    ]
    missing = [name for name, count in rows.items() if name not in page and count > (1 + OFF) * LISTED]
    return [*wrong, *(f"{PAGE.name}: `{name}` has no row" for name in missing)]


def long_files() -> list[str]:
    """Files of more than MAX_LINES, tests too."""
    return [name_of(file) for file in sources(*PACKAGES, TESTS) if len(file.read_text().splitlines()) > MAX_LINES]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, method: bool) -> int:
    """How many there are, apart from a method's first and from those that may only be named, with a default."""
    given = function.args
    static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list)
    named = sum(default is None for default in given.kw_defaults)
    return len(given.posonlyargs) + len(given.args) + named - (1 if method and not static else 0)


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Each function of a module by its qualified name, with the number of its parameters."""

    def within(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield inner, parameters(child, isinstance(node, ast.ClassDef))
            yield from within(child, inner)

    return within(ast.parse(text), "")


def many_parameters() -> list[str]:
    """Functions of more than MAX_PARAMETERS, as `file::name`, but for those of DECLARED."""
    return [
        f"{name_of(file)}::{name}"
        for file in sources(*PACKAGES)
        if not name_of(file).startswith(DECLARED)
        for name, count in functions(file.read_text())
        if count > MAX_PARAMETERS
    ]


def large_folders() -> list[str]:
    """Folders of more than MAX_MODULES."""
    counted = Counter(file.parent for file in sources(*PACKAGES) if file.name != "__init__.py")
    return [name_of(folder) for folder, modules in counted.items() if modules > MAX_MODULES]


def unequal(what: str, found: list[str], reasons: Mapping[str, str]) -> list[str]:
    """What is too large and has no reason, and reasons of what is not."""
    large = [f"{name}: {what}, and no reason in {Path(__file__).name}" for name in found if name not in reasons]
    return [*large, *(f"{name}: has a reason and needs none" for name in reasons if name not in found)]


def problems(rows: Mapping[str, int], page: Mapping[str, int]) -> list[str]:
    """A line for each limit that does not hold; `rows` are counted, `page` are those of the page."""
    found = [
        *unequal(f"more than {MAX_LINES} lines", long_files(), LONG_FILES),
        *unequal(f"more than {MAX_PARAMETERS} parameters", many_parameters(), MANY_PARAMETERS),
        *unequal(f"more than {MAX_MODULES} modules", large_folders(), LARGE_FOLDERS),
        *stale(rows, page),
    ]
    if len(MANY_PARAMETERS) > MAX_EXCEPTIONS:
        found.append(f"{len(MANY_PARAMETERS)} functions with a reason for more parameters, and {MAX_EXCEPTIONS} may be")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 where a limit does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.sizes", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--write", action="store_true", help="write the table into docs/architecture.md")
    given = parser.parse_args(arguments)
    rows, page = sizes(), PAGE.read_text()
    if given.write:
        page = written(page, rows)
        PAGE.write_text(page)
    for name, count in rows.items():
        print(f"{count:>9,}  {'  ' * name.count('/')}{name}")
    found = problems(rows, kept(page))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
