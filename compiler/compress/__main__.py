"""`python -m compiler.compress model.onnx`: compresses one file here, without the service."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.compress.compress import compress
from compiler.compress.report import CompressReport
from compiler.contract import CompressOptions, Event
from compiler.errors import TilewrightError


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the model was written, 1 when it could not be, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler.compress", description="Compress an ONNX model's weights."
    )
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument(
        "-o", "--out", type=Path, help="the file to write (default: the model's name with .compressed.onnx)"
    )
    parser.add_argument(
        "--samples", type=Path, nargs="+", default=[], metavar="FILE.npz", help="inputs to calibrate on"
    )
    parser.add_argument("--options", default="{}", help="options as JSON, such as '{\"largest_error\": 0.05}'")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    out = given.out or given.model.with_suffix(".compressed.onnx")
    try:
        options = CompressOptions.from_json(json.loads(given.options))
        samples = {str(path): path for path in given.samples}
        report = compress(given.model, out, options, samples, _quiet if given.json else _describe)
    except (TilewrightError, OSError, json.JSONDecodeError) as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report.to_json(), indent=2) if given.json else table(report))
    return 0


def _describe(event: Event) -> None:
    if event.kind == "phase" or event.message:
        print(f"[{100 * event.fraction:3.0f}%] {event.message or event.phase}", file=sys.stderr)


def _quiet(event: Event) -> None:
    pass


def table(report: CompressReport) -> str:
    """The layers, the curve and the outputs of a report as lines of text."""
    lines = []
    for row in report.layers:
        times = "" if row.us is None else f"{row.us:g} us of {row.dense_us:g}, error {row.error:g} alone"
        rank = "" if row.rank is None else f"rank {row.rank}"
        lines.append("  ".join([row.node, row.operator, f"{row.sparsity:.0%}", times, row.reason or rank]).rstrip())
    for point in report.curve:
        lines.append(f"curve: {point.sparsity:.1%} {report.saved}, {point.predicted_ms:g} ms, error {point.error}")
    for one in report.outputs:
        agree = "" if one.agree is None else f", {one.agree:.1%} of decisions agree"
        lines.append(f"output {one.name}: error {one.error} against the dense model{agree}")
    times = f"{report.predicted_ms:g} ms of {report.dense_ms:g} predicted"
    lines.append(f"{report.sparsity:.1%} {report.saved}, {times}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
