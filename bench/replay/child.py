"""`python -P child.py TREE ARGUMENT...`: the compiler in TREE, and a failure where another would run.

Run as a file with the folder TREE as PYTHONPATH. Of the compiler it knows the command line alone, `python -m compiler`.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path

WRONG_COMPILER = 70
"""Exit status: what would run, or ran, is not the compiler in TREE alone."""
OTHERS = ("tilewright", "bench", "service", "worker", "migrations")
"""Packages of ours that the compiler does not need: they would come from another commit."""


def main(tree: Path) -> int:
    """Exit status of the compiler, whose arguments are in `sys.argv`."""
    found = find_spec("compiler")
    if found is None or found.origin is None or not Path(found.origin).is_relative_to(tree):
        print(f"compiler would come from {found and found.origin}, not from {tree}", file=sys.stderr)
        return WRONG_COMPILER
    status: object = 0
    try:
        runpy.run_module("compiler", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if strangers := sorted(name for name, module in sys.modules.items() if _is_strange(name, module, tree)):
        print(f"loaded from elsewhere than {tree}: {', '.join(strangers)}", file=sys.stderr)
        return WRONG_COMPILER
    return status if isinstance(status, int) else int(status is not None)


def _is_strange(name: str, module: object, tree: Path) -> bool:
    package = name.partition(".")[0]
    place = getattr(module, "__file__", None)
    return package in OTHERS or (package == "compiler" and place is not None and not Path(place).is_relative_to(tree))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv.pop(1))))
