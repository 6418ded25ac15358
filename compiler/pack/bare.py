"""A program laid out as a folder that the loader runs: for the time of a measurement, with nothing in it for people."""

from __future__ import annotations

from pathlib import Path

from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.pack.manifest import FORMAT_VERSION, port_json, to_bytes
from compiler.pack.pack import WEIGHTS


def lay_out(program: Program, plan: Plan, target: str, weights: Path, folder: Path) -> None:
    """Makes `folder`; `weights` is a file that holds the program's, and may serve several.

    There are no digests: load it with `verify=False`.
    """
    folder.mkdir()
    manifest = {
        "format_version": FORMAT_VERSION,
        "target": target,
        "lanes": plan.lanes,
        "inputs": [port_json(port) for port in program.inputs],
        "outputs": [port_json(port) for port in program.outputs],
    }
    (folder / "manifest.json").write_bytes(to_bytes(manifest))
    (folder / "model.so").write_bytes(program.library)
    (folder / WEIGHTS).symlink_to(weights.resolve())
