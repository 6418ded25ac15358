"""The loader as a command."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.errors import ArtifactError, InputError, RunError
from compiler.pack.loader.model import Model
from compiler.pack.loader.specs import Array


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: runs the model once on random inputs, or measures it. Exit status 1 when it cannot be run."""
    parser = argparse.ArgumentParser(description="Runs a Tilewright artifact on random inputs.")
    parser.add_argument("model", nargs="?", help="a .tw file or an extracted folder (default: where this file lies)")
    parser.add_argument("--bench", action="store_true", help="measure the latency")
    parser.add_argument("--profile", action="store_true", help="measure each kernel")
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long --bench runs (default 2)")
    parser.add_argument("--lanes", type=int, help="threads (default: what the plan was made for)")
    parser.add_argument("--plan", type=int, help="which of its plans (default: the one that suits these cores)")
    parser.add_argument("--pin", action="store_true", help="keep each lane on a core of its own")
    parser.add_argument("--binding", type=int, help="which of its bindings, from 1 (default: the first)")
    parser.add_argument("--target", help="which of its profiles (default: the most able one that is here)")
    parser.add_argument("--device", type=int, default=0, help="which GPU, for a model that runs on one (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may have fewer letters than names have
    try:
        asked = {name: getattr(options, name) for name in ("device", "plan", "pin", "binding", "target")}
        with Model(options.model, options.lanes, **asked) as model:
            done = _asked_for(model, options)
    except (ArtifactError, InputError, RunError, ValueError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    print(json.dumps(done) if options.json else "\n".join(_lines(done)))
    return 0


def _asked_for(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    inputs = model.random_inputs(options.seed)
    outputs = model.run(inputs)
    done: dict[str, Any] = {
        "model": str(model.path),
        "target": model.target,
        "plan": str(model.plan),
        **({"binding": str(model.binding)} if len(model.bindings) > 1 else {}),
        "inputs": {spec.name: str(spec) for spec in model.inputs},
        "outputs": {name: _summary(array) for name, array in outputs.items()},
    }
    if options.bench:
        done["bench"] = model.bench(options.seconds, inputs)
    if options.profile:
        done["profile"] = model.profile(inputs)
    return done


def _summary(array: Array) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
    }
    if array.size and array.dtype.kind == "f" and np.isfinite(array).all():
        shown.update(min=float(array.min()), max=float(array.max()))
    return shown


def _percentiles(bench: Mapping[str, Any]) -> str:
    ms = {key: f"{value * 1e3:.3f} ms" for key, value in bench.items() if isinstance(value, float)}
    return f"{ms['median']} median, {ms['min']} least, {ms['p10']} p10, {ms['p90']} p90, {ms['p99']} p99"


def _lines(done: Mapping[str, Any]) -> list[str]:
    lines = [str(done["model"]), f"  {done['target']}, {done['plan']}"]
    lines += [f"  binding {done['binding']}"] if "binding" in done else []
    lines += [f"  input  {name!r}: {spec}" for name, spec in done["inputs"].items()]
    for name, about in done["outputs"].items():
        span = f"  {about['min']:.6g} .. {about['max']:.6g}" if "min" in about else ""
        lines.append(f"  output {name!r}: {about['dtype']}{about['shape']}{span}")
    if "bench" in done:
        b = done["bench"]
        lines.append(f"  latency {_percentiles(b)}")
        if "with_copies" in b:
            lines.append(f"  with copies from and to the host {_percentiles(b['with_copies'])}")
        lines.append(
            f"  {b['runs']} runs on {b['lanes']} lanes; "
            f"first run {b['first_run'] * 1e3:.3f} ms, load {b['load'] * 1e3:.3f} ms"
        )
    for row in sorted(done.get("profile", ()), key=lambda row: -row["seconds"]):
        lines.append(
            f"  {row['seconds'] * 1e6:10.1f} us {row['share']:6.1%}  {row['call']:4d} {row['family']}  {row['tile']}"
        )
    return lines
