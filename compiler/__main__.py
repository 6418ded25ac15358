"""`python -m compiler model.onnx`: compiles one file here, without the service."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, Event
from compiler.errors import OptionsError, TilewrightError
from compiler.pipeline import compile_model
from compiler.request import Host, Request


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the artifact was written, 1 when the compilation failed, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler", description="Compile an ONNX model into one artifact.")
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("-o", "--out", type=Path, help="the artifact to write (default: the model's name with .tw)")
    defined: dict[str, Any] = {field.name: field.default for field in fields(CompileOptions)}
    for name in ("target", "precision"):  # their JSON Schema takes a tenth of a second to make
        option = defined[name]
        parser.add_argument(f"--{name}", default=option.default, help=f"{option.description} (default: %(default)s)")
    parser.add_argument(
        "--options", default="{}", help='more options as JSON, such as \'{"inputs": {"x": [1, 3, 224, 224]}}\''
    )
    parser.add_argument("--records", type=Path, help="a records.jsonl of earlier measurements to reuse")
    parser.add_argument(
        "--samples",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE.npz",
        help="inputs to judge and, the first, to time on",
    )
    parser.add_argument("--dump", type=Path, help="a folder for one numbered text file per step")
    parser.add_argument("--explain", action="store_true", help="print what was rewritten, refused and tried, and why")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may have fewer letters than names have
    given = parser.parse_args(arguments)
    artifact = given.out or given.model.with_suffix(".tw")
    dump = given.dump or (artifact.with_suffix(".steps") if given.explain else None)
    try:
        asked = {"target": given.target, "precision": given.precision}
        options = CompileOptions.from_json({**asked, **_options(given.options)})
        _demand_place(artifact, "--out")
        if dump is not None:
            _make_folder(dump)
        records = [json.loads(line) for line in given.records.read_text().splitlines()] if given.records else []
        samples = {str(path): path for path in given.samples}
        host = Host(records, _Progress(quiet=given.json), dump)
        report = compile_model(Request(given.model, artifact, options, samples=samples), host)
    except (TilewrightError, OSError, ValueError) as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    if given.explain and dump is not None:
        for path in (
            sorted(dump.glob("*_explanation.txt"))
            + sorted(dump.glob("*_tile.txt"))
            + sorted(dump.glob("*_schedules.txt"))
        ):
            print(f"== {path.name}\n{path.read_text()}")
    print(json.dumps(report.to_json(), indent=2) if given.json else _summary(report.to_json(), artifact))
    return 0


def _options(text: str) -> dict[str, Any]:
    """What `--options` says. Raises OptionsError for what is no JSON object."""
    fix = """give an object, such as '{"threads": 1}'"""
    try:
        options = json.loads(text)
    except ValueError as reason:
        raise OptionsError(f"--options is not JSON: {reason}", fix=fix) from reason
    if not isinstance(options, dict):
        raise OptionsError(f"--options is {text.strip()[:40]}, and not a JSON object", fix=fix)
    return options


def _demand_place(file: Path, option: str) -> None:
    """Raises OptionsError where a file cannot be written, before anything is compiled for it."""
    if file.is_dir():
        raise OptionsError(f"{option}: {file} is a folder", fix=f"name a file with {option}")
    if not file.parent.is_dir():
        raise OptionsError(f"{option}: there is no folder {file.parent}", fix=f"make it, or name another with {option}")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise OptionsError(
            f"{option}: the folder {file.parent} cannot be written", fix=f"name another folder with {option}"
        )


def _make_folder(folder: Path) -> None:
    """The folder of `--dump`. Raises OptionsError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise OptionsError(
            f"--dump: {folder} cannot be made: {reason.strerror}", fix="name another folder with --dump"
        ) from reason
    _demand_place(folder / "step.txt", "--dump")


class _Progress:
    """Prints phases and notices to standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, event: Event) -> None:
        if self.quiet or event.kind == "record":
            return
        if event.kind == "phase":
            print(f"[{100 * event.fraction:3.0f}%] {event.phase}", file=sys.stderr)
        elif event.message:
            print(f"       {event.message}", file=sys.stderr)


def _summary(report: dict[str, object], artifact: Path) -> str:
    errors = report["errors"]
    assert isinstance(errors, tuple | list)
    worst = max((error["max_relative"] for error in errors), default=0.0)
    arena, latency, ranks = report["arena_bytes"], report["latency_s"], report["rank_correlation"]
    assert isinstance(arena, int)
    assert isinstance(latency, float)
    assert isinstance(report["unshown"], tuple | list)
    ranked = (
        ""
        if ranks is None
        else f"\nrank correlation of the cost model with measurements {ranks:.2f}, "
        f"mean of {report['ranked_kernels']} kernels"
    )
    run = f"{1e3 * latency:.3f} ms on {report['threads']} lanes, largest error {worst:.1e} of the largest value"
    beside = report["beside_float32"]
    assert isinstance(beside, tuple | list)
    if beside:
        ours, plain = (max(one[name] for one in beside) for name in ("artifact", "float32"))
        run += f"; on random inputs {ours:.1e}, "
        run += "no worse than float32 itself" if ours <= plain else f"and float32 itself {plain:.1e}"
    unshown = "" if report["verified"] else f"; NOT VERIFIED: nothing shows {', '.join(map(str, report['unshown']))}"
    return (
        f"{artifact}: {report['nodes']} operators in {report['kernels']} kernels, arena {arena / 1e6:.1f} MB, "
        f"{run + unshown if errors or report['cases'] else 'not run on this machine'}{ranked}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
