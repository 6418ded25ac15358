"""What an artifact for browsers holds beside its module: the JavaScript that runs it, its types, and a page.

They are the same for every model, and read what they need from manifest.json.
"""

from __future__ import annotations

from importlib.resources import files

from compiler.codegen.build import WASM

MODULE = "model.wasm"
GLUE = ("model.js", "lane.js", "model.d.ts", "demo.html", "demo.js")


def for_browsers(machine: str) -> bool:
    """Whether programs for an architecture run in browsers."""
    return machine == WASM


def glue() -> dict[str, str]:
    """The files beside the module, by name."""
    return {name: (files("compiler.pack.browser") / name).read_text("utf-8") for name in GLUE}
