"""`--pieces` of `tilewright run` and `tilewright infer`: an output that is written while it is made."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from tilewright.cli.output import console, print_json, seconds
from tilewright.errors import UsageError
from tilewright.files import whole

STREAM = Path("-")
Pieces = Annotated[
    Path | None,
    typer.Option(
        "--pieces", help="Of an artifact with chunks: write bare elements there as they are made; -: standard output."
    ),
]


@dataclass(frozen=True)
class Written:
    """How many pieces came, their element type, and when the first and the last one came, in seconds."""

    pieces: int
    dtype: str
    first_s: float
    seconds: float

    def show(self, *, as_json: bool, to: Path) -> None:
        """For people on standard error; as JSON on standard output, unless that has the elements."""
        if as_json and to != STREAM:
            print_json({"pieces": self.pieces, "dtype": self.dtype, "first_s": self.first_s, "seconds": self.seconds})
            return
        times = f"the first after {seconds(self.first_s)}, all {seconds(self.seconds)}"
        console().print(f"pieces: {self.pieces} of {self.dtype}; {times}", markup=False)


def file_of(pieces: Path | None) -> Path | None:
    """Where the elements go, unless that is standard output."""
    return None if pieces == STREAM else pieces


def demand_alone(pieces: Path, **others: Any) -> None:
    """Raises `UsageError` for what goes without `--pieces`."""
    for name, value in others.items():
        if value:
            raise UsageError(f"--pieces {pieces} goes without --{name}", fix="leave one of them out")


def write(coming: Iterator[Any], target: Path) -> Written:
    """Writes each piece when it comes; a file is there whole or not at all. Raises as `coming` does, `UsageError`."""
    begin = time.perf_counter()
    count, dtype, first_s = 0, "", 0.0
    with _opened(target) as file:
        for piece in coming:
            file.write(piece.astype(piece.dtype.newbyteorder("<"), copy=False).tobytes())
            file.flush()
            count, dtype = count + 1, piece.dtype.name
            first_s = first_s or time.perf_counter() - begin
    return Written(count, dtype, first_s, time.perf_counter() - begin)


@contextlib.contextmanager
def _opened(target: Path) -> Iterator[IO[bytes]]:
    if target == STREAM:
        yield sys.stdout.buffer
        return
    with whole(target) as file:
        yield file
