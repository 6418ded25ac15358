"""Vela in this process: an int8 TFLite or TOSA file in, a command stream and what Vela estimates out.

`ethosu.regor` is not a documented interface, so one version of it is asked for. What falls back to the CPU costs
nothing in its totals; its reasons are written by C++ to file descriptor 1. Of a TOSA file nothing falls back: one
operator that the accelerator has not, and Vela refuses the file without saying which.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata, resources
from typing import Any

from compiler.accelerate.chips import Chip
from compiler.errors import InternalError, ToolchainMissing

VERSION = "5.2.0"
INSTALL = f"pip install 'ethos-u-vela=={VERSION}' (there is no wheel for Python 3.14)"


@dataclass(frozen=True)
class Part:
    """One operator as Vela took it; `cycles` is the larger of computing and each memory, 0 for what the CPU does."""

    source: str
    made: str
    name: str
    accelerated: bool
    cycles: int
    macs: int
    elements: int


@dataclass(frozen=True)
class Compiled:
    """What Vela made and estimates.

    given      the file that it was given
    memories   by name: bytes at the peak, and bytes moved
    reasons    of each operator that is left to the CPU: its kind, its result, and why in Vela's words
    streams    how many command streams there are; each is begun by a call from the CPU
    """

    given: bytes
    model: bytes
    clock_hz: float
    cycles: int
    macs: int
    memories: dict[str, tuple[int, int]]
    parts: tuple[Part, ...]
    reasons: tuple[tuple[str, str, str], ...]
    streams: int

    @property
    def seconds(self) -> float:
        """On the accelerator, without the calls of it."""
        return self.cycles / self.clock_hz


def demand_vela() -> None:
    """Raises ToolchainMissing with the line that installs it, unless the version that this module knows is here."""
    try:
        found = metadata.version("ethos-u-vela")
    except metadata.PackageNotFoundError:
        raise ToolchainMissing("Vela, Arm's compiler for Ethos-U, is not installed", fix=INSTALL) from None
    if found != VERSION:
        raise ToolchainMissing(f"Vela {found} is installed, and {VERSION} is needed", fix=INSTALL)


class FileRefused(InternalError):
    """What Vela says of a file that it does not compile."""


def compile_file(model: bytes, chip: Chip) -> Compiled:
    """Compiles a file in the chip's format. Raises ToolchainMissing, and FileRefused."""
    demand_vela()
    regor = import_module("ethosu.regor")
    ini = resources.files("ethosu").joinpath("config_files/Arm/vela.ini").read_text()
    parser = configparser.ConfigParser()
    parser.read_string(ini)
    mode = f"Memory_Mode.{chip.memory_mode}"
    cache = parser.getint(mode, "arena_cache_size", fallback=chip.arena_cache)
    system = (
        f"[architecture]\nmacs={chip.macs}\ncores=1\n[vela]\nsystem_config_name={chip.system}\n"
        f"memory_mode_name={chip.memory_mode}\n{ini}"
    )
    options = (
        "\n[compiler]\nenable_db=true\noutput_format=TFLite\ncop_format=COP1\n\n[scheduler]\noptimize=Performance\n"
        f"arena_size_limit={cache}\ndisable_feature=\ncpu_tensor_alignment=16\ntensor_allocator=HillClimb\n\n[graph]\n"
    )
    lines: list[str] = []
    try:
        with _captured(lines):
            made = regor.compile(chip.family, model, chip.format.upper(), system, options=options, verbose=True)
    except Exception as error:
        said = "; ".join([str(error).strip(), *filter(None, map(str.strip, lines[-3:]))])
        raise FileRefused(f"Vela refuses the file: {said}") from error
    report = made.perf_report
    memories = {
        str(name): (int(one.peakUsage), sum(int(a.bytesRead + a.bytesWritten) for a in one.accesses.values()))
        for name, one in report.memories.items()
    }
    compiled = bytes(made.model)
    return Compiled(
        model,
        compiled,
        parser.getfloat(f"System_Config.{chip.system}", "core_clock"),
        int(report.totalCycles),
        int(report.macCount),
        memories,
        _parts(made.opt_database.tables),
        reasons_of(lines),
        _streams(compiled),
    )


def reasons_of(lines: list[str]) -> tuple[tuple[str, str, str], ...]:
    """Of each warning: the operator, its result, and what follows up to the next as one text."""
    found: list[tuple[str, str, list[str]]] = []
    for line in lines:
        head = re.match(r"Warning \(supported operators\) operator: (\w+), ofm: '(.*)'", line)
        if head:
            found.append((head[1], head[2], []))
        elif found and line.strip():
            found[-1][2].append(line.strip().removeprefix("Reason: "))
    return tuple((operator, result, "; ".join(text)) for operator, result, text in found)


@contextmanager
def _captured(lines: list[str]) -> Iterator[None]:
    """What is written to file descriptors 1 and 2 meanwhile, as lines."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        saved = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def _parts(tables: Any) -> tuple[Part, ...]:
    rows = {name: [dict(zip(table.header, row, strict=False)) for row in table.data] for name, table in tables.items()}
    source = {row["id"]: row for row in rows.get("source", ())}
    queued = {row["optimised_id"] for row in rows.get("queue", ())} | {row["id"] for row in rows.get("group", ())}
    parts = []
    for row in rows.get("perf", ()):
        origin = source.get(row["source_id"], {})
        elements = 1
        for side in ("ofm_w", "ofm_h", "ofm_d"):
            elements *= int(origin.get(side) or 1)
        parts.append(
            Part(
                str(origin.get("operator", "?")),
                str(row["operator"]),
                str(row["name"]),
                row["optimised_id"] in queued or row["id"] in queued,
                int(row["op_cycles"]),
                int(row["mac_count"]),
                elements,
            )
        )
    return tuple(parts)


def _streams(model: bytes) -> int:
    graph = import_module("ethosu.vela.tflite.Model").Model.GetRootAsModel(model, 0)
    codes = [graph.OperatorCodes(i).CustomCode() for i in range(graph.OperatorCodesLength())]
    body = graph.Subgraphs(0)
    return sum(codes[body.Operators(i).OpcodeIndex()] == b"ethos-u" for i in range(body.OperatorsLength()))
