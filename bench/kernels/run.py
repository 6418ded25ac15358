"""Where the time of a model goes on one thread: each of our kernels, and the peers' layers for the same nodes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx
from rich.console import Console

from bench import report
from bench.asked import add_common, positive
from bench.cache import Cache
from bench.ending import ended
from bench.engines import tilewright
from bench.engines.catalogue import chosen, telling
from bench.gpu import check
from bench.kernels import table
from bench.kernels.profile import ROUNDS, profile
from bench.kernels.row import Row, rows_of
from bench.kernels.sample import Sampled, build, sampled
from bench.kernels.wording import describe
from bench.models.measure import Asked, measure, prepare
from bench.race import race
from bench.race.cores import Probe, probe
from bench.subject import Subject
from bench.subjects import check as known
from bench.subjects import subject
from bench.zoo.flops import static_shapes
from bench.zoo.operators import SAMPLES, Sample


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 when a model failed; 2 for wrong arguments; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bench kernels", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of the zoo or the public set, or an .onnx file")
    parser.add_argument("--sample", action="store_true", help="ten kernels of known networks, each a model of its own")
    parser.add_argument(
        "--target",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: the samples beside cuDNN and cuBLAS, as `bench gpu kernels` has them (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=positive, help="of each race and profile (default: that of each)")
    add_common(parser)
    given = parser.parse_args(arguments)
    if bool(given.models) == given.sample:
        parser.error("name models, or ask for --sample")
    if given.target == "cuda":
        if not given.sample:
            parser.error("kernels of whole models are measured on CPUs; ask for --sample")
        return check.main(["kernels", "--budget", str(10 * given.budget)])
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, arguments, console), parser, console)


def run(given: argparse.Namespace, arguments: Sequence[str], console: Console) -> int:
    """What was asked for, measured and printed: exit status 0."""
    peers = telling(chosen(given.peers))
    for name in given.models:
        known(name)
    asked = Asked(peers, given.precision, given.budget, Cache(given.cache))
    section = report.Section("kernels", arguments, peers)
    measured = (
        _samples(asked, given.rounds, console) if given.sample else _models(given.models, asked, given.rounds, console)
    )
    text, rows = measured
    print(text, end="")
    if given.json:
        report.write(given.json, rows)
    if given.markdown:
        section.append(given.markdown, text)
    return 0


def _models(
    names: Sequence[str], asked: Asked, rounds: int | None, console: Console
) -> tuple[str, list[dict[str, Any]]]:
    """Tables and rows of whole models."""
    texts, measured = [], []
    with probe() as cores:
        for name in names:
            with console.status(name) as status:

                def tell(more: str, name: str = name) -> None:
                    status.update(f"{name}: {more}")

                rows = kernels_of(subject(name, asked.cache.place("models")), asked, cores, rounds or ROUNDS, tell)
            texts.append(f"### {name}\n\n{table.by_group(rows, asked.peers)}")
            texts += filter(None, [table.most_lost(rows)])
            measured += [{"model": name, **row.to_json()} for row in rows]
    return "\n".join(texts), measured


def kernels_of(one: Subject, asked: Asked, cores: Probe, rounds: int, tell: Callable[[str], None]) -> list[Row]:
    """One model, compiled for one thread and profiled in every engine.

    Raises what the compiler raises, and `EngineFailed`.
    """
    ready = prepare(one, 1, asked, tell)
    found = profile(
        ready.contenders,
        ready.expected.inputs,
        cores,
        precision=asked.precision,
        rounds=rounds,
        watch=lambda over: tell(f"round {over} of {rounds}"),
    )
    return rows_of(onnx.load(one.file), tilewright.calls(ready.compiled.artifact), found)


def _samples(asked: Asked, rounds: int | None, console: Console) -> tuple[str, list[dict[str, Any]]]:
    """Table and rows of the sample kernels."""
    found = []
    with probe() as cores:
        for sample in SAMPLES:
            with console.status(sample.name) as status:

                def tell(more: str, name: str = sample.name) -> None:
                    status.update(f"{name}: {more}")

                found.append(sample_of(sample, asked, cores, rounds, tell))
            console.print(f"{sample.name}: {found[-1].gflops:.0f} GFLOP/s", markup=False)
    return table.of_samples(found, asked.peers), [one.to_json() for one in found]


def sample_of(sample: Sample, asked: Asked, cores: Probe, rounds: int | None, tell: Callable[[str], None]) -> Sampled:
    """One sample kernel, raced and profiled. Raises what the compiler raises, and `EngineFailed`."""
    one = build(sample, asked.cache.place("models"))
    row = measure(one, 1, rounds or race.ROUNDS, asked, cores, tell)
    ready = prepare(one, 1, asked, tell)
    found = profile(ready.contenders, ready.expected.inputs, cores, precision=asked.precision, rounds=rounds or ROUNDS)
    model = onnx.load(one.file)
    what = describe(model.graph.node, static_shapes(model))
    return sampled(row, found, what, tilewright.calls(ready.compiled.artifact))
