"""`python -m compiler.legalise model.onnx --for PROFILE`: legalises one file here and prints the report."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.contract import LegaliseOptions
from compiler.contract.legalisation import PROFILES
from compiler.errors import TilewrightError
from compiler.legalise.legalise import legalise
from compiler.legalise.profile import fields_of


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the model was legalised, 1 when it could not be, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.legalise", description="Bring a model to an accelerator.")
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("--for", dest="profile", required=True, help=f"{', '.join(PROFILES)}, or a .toml file")
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: with .legal.onnx)")
    parser.add_argument("--samples", type=Path, action="append", default=[], metavar="FILE.npz", help="real inputs")
    parser.add_argument("--tolerance", type=float, default=0.05, help="error of an output, of its largest value")
    parser.add_argument("--judge", default="sampled", help="which error must be within it: sampled or proved")
    parser.add_argument("--terms", type=int, default=32, help="of a sum of ReLUs, at most")
    parser.add_argument("--method", default="auto", help="auto, exact or sums")
    parser.add_argument("--whole", action="store_true", help="refuse a model of which a node stays on the CPU")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=VALUE", help="of a symbolic dimension")
    parser.add_argument("--json", action="store_true", help="print errors as JSON too; the report always is")
    given = parser.parse_args(arguments)
    out = given.output or given.model.with_suffix(".legal.onnx")
    try:
        dims = {name: int(value) for name, _, value in (one.partition("=") for one in given.dim)}
        own = Path(given.profile)
        options = LegaliseOptions(
            {"name": own.stem, **fields_of(own)} if own.suffix == ".toml" else given.profile,
            given.tolerance,
            given.judge,
            given.terms,
            given.method,
            whole=given.whole,
            dims=dims,
        )
        report = legalise(given.model, out, options, {str(path): path for path in given.samples})
    except TilewrightError as error:
        if given.json:
            refusals = [str(one) for one in error.refusals]
            said = {"code": error.code, "message": error.message, "fix": error.fix, "refusals": refusals}
            print(json.dumps({"error": said}))
        else:
            print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(json.dumps({"error": {"code": "usage", "message": str(error)}}) if given.json else error, file=sys.stderr)
        return 2
    report["model"] = str(out)
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
