"""`python -m compiler.minimise model.onnx`: the smallest part of a model that fails as the whole does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.contract import CompileOptions
from compiler.errors import TilewrightError
from compiler.minimise.minimise import minimise


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when a part was written, 1 when nothing fails or it cannot be minimised, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.minimise", description="Minimise a failure.")
    parser.add_argument("model", type=Path, help="the ONNX file that is refused, disagrees or crashes the compiler")
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: with .minimised.onnx)")
    parser.add_argument("--options", default="{}", help="options of the compilation, as JSON")
    parser.add_argument("--samples", type=Path, nargs="+", default=[], metavar="FILE.npz", help="if it was given any")
    parser.add_argument("--seconds", type=float, default=300.0, help="when to stop (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    out = given.output or given.model.with_suffix(".minimised.onnx")
    try:
        options = CompileOptions.from_json(json.loads(given.options))
        report = minimise(
            given.model,
            out,
            options,
            given.seconds,
            samples={str(path): path for path in given.samples},
            inputs=out.with_suffix(".npz"),
        )
    except (TilewrightError, OSError, ValueError) as error:
        code, fix = (error.code, error.fix) if isinstance(error, TilewrightError) else ("usage", "")
        said = error.message if isinstance(error, TilewrightError) else str(error)
        if given.json:
            print(json.dumps({"error": {"code": code, "message": said, "fix": fix}}))
        else:
            print(f"{given.model}: {error}", file=sys.stderr)
        return 1 if isinstance(error, TilewrightError) else 2
    files = {"model": str(out), **({} if report.inputs is None else {"inputs_file": str(out.with_suffix(".npz"))})}
    print(json.dumps({**report.to_json(), **files}, indent=2) if given.json else f"{out}: {report}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
