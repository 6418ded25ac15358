"""stream.c: what goes from part to part as tables, before the runtime that is the same for every model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from compiler.codegen.build import Toolchain, compile_library, host_headers
from compiler.codegen.host_tables import c_string, ports, table
from compiler.codegen.writer import Writer
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import KernelGraph
from compiler.ir.parts import Edge, Operand, Parts, Portion
from compiler.ir.program import StreamProgram

ALIGNMENT = 64
"""Bytes; a slot of an edge begins at a multiple of it."""
NO_CORE = -1
SPACES = {"input": "SPACE_INPUT", "output": "SPACE_OUTPUT", "edge": "SPACE_EDGE"}
INCLUDED = ("tw_stream.h", "tw_handover.h", "stream.h")


def emit_stream(
    kernels: KernelGraph,
    parts: Parts,
    portions: Sequence[Portion],
    cores: Sequence[int | None],
    folders: Sequence[str],
    target: CpuTarget,
    toolchain: Toolchain,
) -> StreamProgram:
    """What runs the parts as one: it opens the library of each in its folder, and keeps each device on its core.

    A device without one, beside the CPU, is driven by a thread of its own, whose part's library waits for it.

    It uses no instructions beyond those of every machine of the architecture, so that it runs on each device.

    Raises ToolchainFailed.
    """
    source = _source(kernels, parts, portions, cores, folders)
    headers = stream_headers()
    library = compile_library({"stream.c": source}, headers, replace(target, flags=()), toolchain)
    return StreamProgram({"stream.c": source, **headers}, library)


def stream_headers() -> dict[str, str]:
    """The hand-written headers of stream.c, by file name."""
    folder = files("compiler.devices.cpu.runtime")
    return {**{name: (folder / name).read_text() for name in INCLUDED}, **host_headers()}


def _source(
    kernels: KernelGraph, parts: Parts, portions: Sequence[Portion], cores: Sequence[int | None], folders: Sequence[str]
) -> str:
    writer = Writer()
    writer.line("#define _GNU_SOURCE /* for the cores that threads are kept on */")
    writer.line('#include "stream.h"')
    writer.line("#include <stddef.h>")
    writer.line()
    writer.line("enum space { SPACE_INPUT, SPACE_OUTPUT, SPACE_EDGE };")
    writer.line("struct port { int32_t code, bits, ndim; const int64_t *shape; size_t bytes; };")
    writer.line("struct operand { enum space space; int at; };")
    writer.line("struct after { int part; int64_t frames; };")
    writer.line("struct edge { struct port port; int slots; size_t stride; };")
    writer.line("struct part {")
    writer.line("    int device; const char *folder; int first_operand, ins, outs, first_after, afters, every, turns;")
    writer.line("};")
    writer.line()
    ports(writer, kernels)
    _edges(writer, parts.edges)
    _parts(writer, parts, portions, folders)
    writer.line(f"enum {{ DEVICES = {len(cores)}, FRAMES = {parts.frames} }};")
    writer.line(
        f"static const int cores[DEVICES] = {{{', '.join(str(NO_CORE if one is None else one) for one in cores)}}};"
    )
    writer.line("#define WEIGHT_BYTES 0UL /* parts map their own */")
    writer.line(f"static const char description[] = {c_string(_description(parts, cores, folders))};")
    writer.line()
    writer.line('#include "tw_stream.h"')
    return writer.text()


def _edges(writer: Writer, edges: Sequence[Edge]) -> None:
    writer.line("/* What lies between parts: bytes, so many times. */")
    for at, edge in enumerate(edges):
        writer.line(f"static const int64_t edge_shape_{at}[] = {{{edge.bytes}}};")
    rows = [
        f"{{{{TW_UINT, 8, 1, edge_shape_{at}, {edge.bytes}UL}}, {edge.slots}, "
        f"{max(-(-edge.bytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)}UL}}"
        for at, edge in enumerate(edges)
    ]
    table(writer, "edge", "edges", "EDGES", rows)


def _parts(writer: Writer, parts: Parts, portions: Sequence[Portion], folders: Sequence[str]) -> None:
    operands: list[Operand] = []
    afters: list[str] = []
    rows = []
    for part, portion, folder in zip(parts.parts, portions, folders, strict=True):
        rows.append(
            f"{{{part.device}, {c_string(folder)}, {len(operands)}, {len(portion.inputs)}, {len(portion.outputs)}, "
            f"{len(afters)}, {len(part.after)}, {part.turns.every}, {sum(1 << turn for turn in part.turns.own)}}}"
        )
        operands += [*portion.inputs, *portion.outputs]
        afters += [f"{{{after.part}, {after.frames}}}" for after in part.after]
    table(writer, "operand", "operands", "OPERANDS", [f"{{{SPACES[one.space]}, {one.at}}}" for one in operands])
    table(writer, "after", "afters", "AFTERS", afters)
    table(writer, "part", "parts", "PARTS", rows)


def _description(parts: Parts, cores: Sequence[int | None], folders: Sequence[str]) -> str:
    described = [
        {
            "device": part.device,
            "folder": folder,
            "calls": len(part.calls),
            "after": [{"part": after.part, "frames": after.frames} for after in part.after],
            "every": part.turns.every,
            "turns": list(part.turns.own),
        }
        for part, folder in zip(parts.parts, folders, strict=True)
    ]
    facts = {"devices": list(parts.devices), "cores": list(cores), "frames": parts.frames, "parts": described}
    return json.dumps(facts, sort_keys=True)
