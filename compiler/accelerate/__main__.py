"""`python -m compiler.accelerate model.onnx --target npu:ethos-u55-128`: compiles for an accelerator."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.accelerate.chips import CHIPS, FORMATS
from compiler.accelerate.compile import TOLERANCE, compile_for_accelerator
from compiler.contract import CompileOptions, kinds
from compiler.contract.options import OF_INT8
from compiler.errors import OptionsError, TilewrightError
from compiler.pipeline import compile_model
from compiler.request import Request


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when the artifact was written, 1 when it could not be, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.accelerate", description="Compile for an accelerator.")
    parser.add_argument("model", type=Path, help="the ONNX file, in fp32 or with QuantizeLinear and DequantizeLinear")
    parser.add_argument("--target", help=f"one of {', '.join(chip.target for chip in CHIPS)}")
    parser.add_argument("--devices", metavar="CPU,NPU", help="instead of it: an accelerator and the CPU beside it")
    parser.add_argument("--objective", default="latency", help="of devices: latency, throughput, or latency_ms=30")
    parser.add_argument("--carry", action="append", default=[], metavar="OUTPUT=INPUT", help="a state between frames")
    parser.add_argument("-o", "--out", type=Path, help="the artifact to write (default: the model's name with .tw)")
    parser.add_argument("--samples", type=Path, action="append", default=[], metavar="FILE.npz", help="to calibrate on")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of approximations, of an output's largest")
    parser.add_argument("--ranges", default=OF_INT8["ranges"], help="of activations, as of a quantization")
    parser.add_argument("--equalise", action="store_true", help="scale channels between layers to like weights")
    parser.add_argument("--snr-db", type=float, help="signal to noise that every output must have (default: 10)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=VALUE", help="of a symbolic dimension")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the files that Vela is given")
    parser.add_argument("--as-is", action="store_true", help="leave operators that the accelerator lacks to the CPU")
    parser.add_argument("--json", action="store_true", help="print placement and agreement as JSON")
    asked = parser.parse_args(arguments)
    out = asked.out or asked.model.with_suffix(".tw")
    try:
        samples = {str(path): path for path in asked.samples}
        tolerance = None if asked.as_is else asked.tolerance
        dims = {name: int(value) for name, _, value in (one.partition("=") for one in asked.dim)}
        carry = {made: read for made, _, read in (one.partition("=") for one in asked.carry)}
        options = devices_of(asked.target, asked.devices, asked.objective, carry)
        of_int8 = {name: getattr(asked, name) for name in OF_INT8}
        options = replace(options, dims=dims, format=asked.format, tuning_budget_s=0.0, **of_int8)
        request = Request(asked.model, out, options, samples=samples)
        made = compile_for_accelerator(request, compile_model, tolerance=tolerance)
    except (TilewrightError, OSError, ValueError) as error:
        refusals = [str(one) for one in getattr(error, "refusals", ())]
        if asked.json:
            said = {name: getattr(error, name, default) for name, default in (("code", "usage"), ("fix", ""))}
            said |= {"message": getattr(error, "message", str(error)), "refusals": refusals}
            print(json.dumps({"error": said}))
        else:
            print(f"{asked.model}: {error}", file=sys.stderr)
        return 1
    print(json.dumps({**made.to_json(), "artifact": str(out)}, indent=2) if asked.json else f"{made}\n{out}")
    return 0


def devices_of(target: str | None, devices: str | None, objective: str, carry: Mapping[str, str]) -> CompileOptions:
    """What names the accelerator, the CPU beside it where one is given, the objective, and states.

    Raises OptionsError for what a job could not be asked for either, and where there is no accelerator among it.
    """
    name, equals, number = objective.partition("=")
    wanted: Any = {name: float(number)} if equals else name
    given = {"target": target, "devices": devices.split(",") if devices else None}
    named = {key: one for key, one in given.items() if one}
    options = CompileOptions.from_json({**named, "objective": wanted, "carry": carry})
    kind = kinds.find(options.compiled_for)
    if kind is None or not kind.whole:
        raise OptionsError(
            f"{options.compiled_for} is no accelerator", fix=f"name one: {', '.join(chip.target for chip in CHIPS)}"
        )
    return options


if __name__ == "__main__":
    raise SystemExit(main())
