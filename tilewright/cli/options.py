"""Compile options as the command line takes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tilewright import sources
from tilewright.cli.output import console
from tilewright.errors import UsageError

if TYPE_CHECKING:
    from tilewright.client import Labels

LONGEST_NAME = 200
"""Letters of a name that the server takes."""

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="`cpu`, `cuda`, or a profile, as `cuda:sm_90`, `npu:ethos-u55-128`, `wasm:simd128`; several: one request.",
    ),
]
Target = Annotated[
    str,
    typer.Option("--target", help="`cpu`, `cuda`, or a profile: `cuda:sm_90`, `npu:ethos-u55-128`, `wasm:simd128`."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="fp32; int8: quantised first, on the samples, and all that an NPU has; on a GPU tf32, fp16 or bf16; on "
        "CPUs bf16 where they multiply it, and auto: each kernel in fp32 or bf16, within --tolerance.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", help="Default: every core of the worker.")]
System = Annotated[
    str | None,
    typer.Option("--system", help="What runs the artifact: linux (default); of a CPU's profile also windows, macos."),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        help="Devices that share the model, instead of a target: cores, such as cpu:0,cpu:1@x86-64-v2; cpu,cuda:0; or "
        "cpu,npu:ethos-u65-256.",
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="With --devices: latency (default), throughput, or latency_ms=30 (most throughput within it).",
    ),
]
Carry = Annotated[
    list[str] | None,
    typer.Option("--carry", help="OUTPUT=INPUT: a state that goes from run to run, repeatable; or auto."),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        help="NAME=VALUE of a symbolic dimension; NAME=1,8 binds each, NAME=1:4:16 (min, opt, max) all from 1 to 16.",
    ),
]
Shapes = Annotated[list[str] | None, typer.Option("--shape", help="INPUT=1x3x224x224.")]
Budget = Annotated[float | None, typer.Option("--budget", help="Seconds for measuring candidates.")]
Tolerance = Annotated[float | None, typer.Option("--tolerance", help="Largest accepted error.")]
Data = Annotated[list[Path] | None, typer.Option("--data", help="External data; default: the files the model names.")]
Priority = Annotated[int, typer.Option("--priority", help="Greater goes first; above 0 needs an admin key.")]
Name = Annotated[str | None, typer.Option("--name", help="Its name.")]
Note = Annotated[str | None, typer.Option("--note", help="Anything to be kept with it.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A word to find it by; repeatable.")]
WithTags = Annotated[list[str] | None, typer.Option("--tag", help="Only those with this tag; of several, with all.")]
Query = Annotated[str, typer.Option("--query", "-q", help="Only those with this text in name or note.")]
MaxQueue = Annotated[float | None, typer.Option("--max-queue", help="Seconds in which a worker must have begun it.")]
MaxRun = Annotated[float | None, typer.Option("--max-run", help="Seconds that an attempt may take at most.")]
Compiler = Annotated[
    str | None, typer.Option("--compiler", help="Version of the compiler to use: 0.1.0, 0.1.* or 0.*.")
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", help="Seconds to wait at most; then exit status 6, and the job goes on.")
]
Workload = Annotated[str, typer.Option("--workload", help="A workload of the model, by name: sizes of dimensions.")]
Others = Annotated[list[str] | None, typer.Option("--option", help="NAME=JSON of any other option.")]


def build_options(
    threads: int | None,
    dims: list[str] | None,
    shapes: list[str] | None,
    budget: float | None,
    tolerance: float | None,
    precision: str | None,
    others: list[str] | None,
    devices: str | None = None,
    objective: str | None = None,
    carry: list[str] | None = None,
) -> dict[str, Any]:
    """Options as the server reads them; what was not given is left to its defaults. Raises `UsageError`."""
    given: dict[str, Any] = {
        "threads": threads,
        "tuning_budget_s": budget,
        "tolerance": tolerance,
        "precision": precision,
    }
    given |= {"devices": devices.split(",") if devices else None, "objective": _objective(objective)}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if carry:
        options["carry"] = _carried(carry)
    if dims:
        options["dims"] = {name: _dimension(value) for name, value in map(_pair, dims)}
    if shapes:
        options["inputs"] = {
            name: [_whole("--shape", length) for length in text.lower().split("x") if text]
            for name, text in map(_pair, shapes)
        }
    return options | other_options(others)


def _carried(texts: list[str]) -> dict[str, str] | str:
    """By output the input that it is in the next inference; or `auto`. Raises `UsageError` for one named twice."""
    if texts == ["auto"]:
        return "auto"
    pairs = [*map(_pair, texts)]
    outputs = [out for out, _ in pairs]
    if twice := next((out for out in outputs if outputs.count(out) > 1), None):
        raise UsageError(f"--carry names output {twice!r} twice", fix="name each once, as OUTPUT=INPUT")
    return dict(pairs)


def _objective(text: str | None) -> Any:
    """`latency_ms=30` as the object that the server reads; other words as they are. Raises `UsageError`."""
    name, equals, number = (text or "").partition("=")
    if not equals:
        return text
    try:
        return {name: float(number)}
    except ValueError:
        raise UsageError(f"--objective {text}: {number!r} is no number", fix="write latency_ms=30") from None


def other_options(texts: list[str] | None) -> dict[str, Any]:
    """What `--option NAME=JSON` says. Raises `UsageError`."""
    options: dict[str, Any] = {}
    for name, text in map(_pair, texts or ()):
        try:
            options[name] = json.loads(text)
        except ValueError:
            raise UsageError(
                f"--option {name}: {text!r} is not JSON", fix="quote strings, as in --option 'a=\"b\"'"
            ) from None
    return options


def is_file(model: str) -> bool:
    """Whether it is to be read here; what looks like a digest and is no file is one that the server has."""
    from tilewright.names import is_digest

    return Path(model).exists() or not is_digest(model)


def demand_files(model: str | Path, *others: Path) -> None:
    """Raises `UsageError` for a file that is not there, before a server is looked for; addresses are no files."""
    is_here = is_file(str(model)) and not sources.is_address(model)
    for file in ([Path(model)] if is_here else []) + [*others]:
        try:
            file.stat()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}", fix="give the path of a file") from error


def file_name(model: str) -> str:
    """The path of a model's file; of an address the name, for a file in the current folder."""
    return sources.name_of(model) if sources.is_address(model) else model


def fetched(model: str) -> str:
    """The path of a model, which is fetched first if it has an address. Raises as `tilewright.sources.fetched`."""
    if not sources.is_address(model):
        return model
    console().print(f"fetching {model}", style="dim", markup=False)
    return str(sources.fetched(model))


def name_of(name: str | None, model: str) -> str | None:
    """What a job is called: as was said, else as the file of its model is; None for a model that the server has."""
    if name is not None or not is_file(model):
        return name
    file = os.path.basename(os.path.abspath(file_name(model)))
    shown = "".join(letter for letter in file if letter >= " " and letter != "\x7f")
    return shown[:LONGEST_NAME] or None


def given_of(**values: Any) -> dict[str, Any]:
    """Those values that were given."""
    return {name: value for name, value in values.items() if value is not None}


def labels(name: str | None, note: str | None, tags: list[str] | None) -> Labels:
    """What is to be called otherwise; an empty text takes away."""
    texts = {name: text or None for name, text in given_of(name=name, note=note).items()}
    kept = {} if tags is None else {"tags": [tag for tag in tags if tag] or None}
    return cast("Labels", {**texts, **kept})


def for_targets(options: dict[str, Any], targets: list[str] | None) -> list[dict[str, Any]]:
    """The options once for each target, once without when there is none.

    Raises `UsageError` for a target named twice.
    """
    named = targets or []
    if len(set(named)) < len(named):
        raise UsageError("a target is named twice", fix="name each once")
    return [{**options, "target": name} for name in named] or [options]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if text.count("=") > 1 and text[-1] not in '"]}' else text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE", fix="write it as name=value")
    return name, value


def sizes(dims: list[str] | None) -> dict[str, int]:
    """By name of a dimension one size. Raises `UsageError`."""
    return {name: _whole("--dim", value) for name, value in map(_pair, dims or ())}


Dimension = int | dict[str, int]


def _dimension(text: str) -> Dimension | list[Dimension]:
    """A value or a range, or several with commas between."""
    values = [_range(value) for value in text.split(",")]
    return values if len(values) > 1 else values[0]


def _range(text: str) -> Dimension:
    """A number, or `min:max` or `min:opt:max`."""
    ends = [_whole("--dim", part) for part in text.split(":")]
    if len(ends) == 1:
        return ends[0]
    if len(ends) > 3:
        raise UsageError(f"--dim: {text!r} is no range", fix="give min:max or min:opt:max, such as 1:4:16")
    return dict(zip(("min", "opt", "max") if len(ends) == 3 else ("min", "max"), ends, strict=True))


def _whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a whole number", fix="give dimensions as whole numbers") from None
