"""The kinds of job, each one record, as a user's program knows them; the server has a list of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.benchmark import Benchmark
from tilewright.wire import Inference, Work


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    name    as the server calls it
    cli     the module of the command line with the command that makes such jobs, which stands in the table of
            `tilewright.cli.commands`, and `show`, which prints what one came to
    path    where such jobs are made of a model, options and samples; empty: elsewhere
    result  what `show` is given; None: the report
    """

    name: str
    cli: str
    path: str = ""
    result: type[Work] | None = None


KINDS: tuple[JobKind, ...] = (
    JobKind("compile", "tilewright.cli.compile"),
    JobKind("benchmark", "tilewright.cli.bench", result=Benchmark),
    JobKind("inference", "tilewright.cli.infer", result=Inference),
    JobKind("quantization", "tilewright.cli.quantize", "/quantizations"),
    JobKind("compression", "tilewright.cli.compress", "/compressions"),
    JobKind("legalisation", "tilewright.cli.legalise", "/legalisations"),
    JobKind("placement", "tilewright.cli.place", "/placements"),
    JobKind("minimisation", "tilewright.cli.minimise"),
)


def find(name: str) -> JobKind | None:
    """The kind of this name; None for one that this version does not know."""
    return next((kind for kind in KINDS if kind.name == name), None)
