"""`tilewright run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright
from tilewright.arrays import read_npz, write_npz
from tilewright.cli.options import sizes
from tilewright.cli.output import Json, failures, print_json, results
from tilewright.cli.pieces import Pieces, demand_alone, file_of, write
from tilewright.errors import UsageError
from tilewright.files import whole

BENCH_S = 2.0
SHOWN = ("median", "p10", "p90", "min")


def run(
    artifact: Annotated[Path, typer.Argument(help="A .tw file.")],
    inputs: Annotated[
        Path | None, typer.Option("--input", help="An .npz with the inputs by name; default: random.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz.")] = None,
    bench: Annotated[bool, typer.Option("--bench", help="Measure the latency for two seconds.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of random inputs (default: 0), and of what the model draws.")
    ] = None,
    dims: Annotated[
        list[str] | None, typer.Option("--dim", help="NAME=SIZE of a dimension with a range, for random inputs.")
    ] = None,
    pieces: Pieces = None,
    as_json: Json = False,
) -> None:
    """Run an artifact on this machine, without a server. With `--json`: `outputs`, and `bench` with every sample."""
    with failures(as_json, output or file_of(pieces)), tilewright.load(artifact) as model, refusals(model):
        given = read_npz(inputs) if inputs else drawn(model, seed or 0, sizes(dims))
        if pieces:
            demand_alone(pieces, output=output, bench=bench)
            write(model.chunks(given, seed=seed), pieces).show(as_json=as_json, to=pieces)
            return
        draws = any(getattr(one, "random", False) for one in getattr(model, "bindings", ()))
        outputs = tensors(model.run(given, seed=seed) if draws else model.run(given))
        if output:
            with whole(output) as file:
                write_npz(file, outputs)
        shown = {name: {"shape": list(value.shape), "dtype": str(value.dtype)} for name, value in outputs.items()}
        measured = model.bench(BENCH_S, given) if bench else None
        if as_json:
            print_json({"outputs": shown, "bench": measured})
            return
        out = results()
        for name, about in shown.items():
            out.print(f"{name}: {about['dtype']} {about['shape']}", markup=False)
        if measured:
            text = ", ".join(f"{name} {measured[name] * 1e3:.3f} ms" for name in SHOWN if name in measured)
            how = measured.get("by", "estimated") if measured.get("estimated") else f"over {measured['runs']} runs"
            out.print(f"latency {how}: {text}", markup=False)


def tensors(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs as arrays: a sequence is its elements, `name.0` and so on, as inputs are; an absent optional is none."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            found |= {f"{name}.{at}": one for at, one in enumerate(value)}
        elif value is not None:
            found[name] = value
    return found


def drawn(model: tilewright.Model, seed: int, wanted: dict[str, int]) -> dict[str, Any]:
    """Random inputs of the model's shapes, at sizes of dimensions that it leaves open. Raises `UsageError`."""
    if not wanted:
        return model.random_inputs(seed)
    ranged = [
        one for one in getattr(model, "bindings", ()) if {*wanted} <= {size.name for size in getattr(one, "open", ())}
    ]
    if not ranged:
        names = ", ".join(map(repr, wanted))
        raise UsageError(
            f"the artifact leaves no dimensions {names} open", fix="compile with a range of them, or leave --dim out"
        )
    return model.at(ranged[0].number).random_inputs(seed, wanted)


@contextmanager
def refusals(model: tilewright.Model) -> Iterator[None]:
    """Turn what the artifact's loader refuses (an input, a run) into a `UsageError`."""
    try:
        yield
    except model.errors as error:
        message, _, fix = str(error).partition(" Fix: ")
        raise UsageError(message, fix) from error
