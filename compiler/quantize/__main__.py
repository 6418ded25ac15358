"""`python -m compiler.quantize model.onnx`: quantises one file here, without the service."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.contract import Event, QuantizeOptions
from compiler.errors import TilewrightError
from compiler.quantize.quantize import QuantizeReport, quantize


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the model was written, 1 when it could not be, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.quantize", description="Quantise an ONNX model.")
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("-o", "--out", type=Path, help="the file to write (default: the model's name with .int8.onnx)")
    parser.add_argument(
        "--samples", type=Path, nargs="+", default=[], metavar="FILE.npz", help="inputs to calibrate on"
    )
    parser.add_argument("--options", default="{}", help='options as JSON, such as \'{"ranges": "mse", "snr_db": 30}\'')
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    out = given.out or given.model.with_suffix(".int8.onnx")
    try:
        options = QuantizeOptions.from_json(json.loads(given.options))
        samples = {str(path): path for path in given.samples}
        report = quantize(given.model, out, options, samples, _quiet if given.json else _tell)
    except (TilewrightError, OSError, json.JSONDecodeError) as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report.to_json(), indent=2) if given.json else table(report))
    return 0


def _tell(event: Event) -> None:
    if event.kind == "phase" or event.message:
        print(f"[{100 * event.fraction:3.0f}%] {event.message or event.phase}", file=sys.stderr)


def _quiet(event: Event) -> None:
    pass


def table(report: QuantizeReport) -> str:
    """The layers and outputs of a report as lines of text."""
    lines = []
    for row in report.layers:
        shown = [f"{name} {db:.1f} dB" for name, db in (("weights", row.weights_db), ("alone", row.outputs_db)) if db]
        lines.append("  ".join([row.node, row.operator, row.precision, *shown, row.reason or ""]).rstrip())
    for one in report.outputs:
        said = "no difference" if one.snr_db is None else f"{one.snr_db:.1f} dB"
        lines.append(f"output {one.name}: {said} against fp32")
    return "\n".join([*lines, f"{report.bytes} bytes, of {report.model_bytes}"])


if __name__ == "__main__":
    raise SystemExit(main())
