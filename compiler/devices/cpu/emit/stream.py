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
from compiler.ir.plans.parts import Edge, Operand, Parts, Portion
from compiler.ir.program import StreamProgram

ALIGNMENT = 64
"""Bytes; a slot of an edge begins at a multiple of it."""
NO_CORE = -1
SPACES = {"input": "SPACE_INPUT", "output": "SPACE_OUTPUT", "edge": "SPACE_EDGE", "state": "SPACE_STATE"}
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
    writer.line("enum space { SPACE_INPUT, SPACE_OUTPUT, SPACE_EDGE, SPACE_STATE };")
    writer.line("struct port { int32_t code, bits, ndim; const int64_t *shape; size_t bytes; };")
    writer.line("struct operand { enum space space; int at; };")
    writer.line("struct after { int part; int64_t frames; };")
    writer.line("struct edge { struct port port; int slots; size_t stride; };")
    writer.line("struct state { int output, input, slots; size_t stride; };")
    writer.line("struct kept { int state; };")
    writer.line("struct part {")
    writer.line(
        "    int device; const char *folder; int first_operand, ins, outs, first_after, afters, first_kept, kept;"
    )
    writer.line("    int every, turns;")
    writer.line("};")
    writer.line()
    ports(writer, kernels)
    _edges(writer, parts.edges)
    _states(writer, kernels, parts)
    _parts(writer, kernels, parts, portions, folders)
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
        f"{{{{TW_UINT, 8, 1, edge_shape_{at}, {edge.bytes}UL}}, {edge.slots}, {_stride(edge.bytes)}UL}}"
        for at, edge in enumerate(edges)
    ]
    table(writer, "edge", "edges", "EDGES", rows)


def _states(writer: Writer, kernels: KernelGraph, parts: Parts) -> None:
    sizes = [kernels.buffers[kernels.inputs[state.input]].type.bytes for state in parts.states]
    rows = [
        f"{{{state.output}, {state.input}, {state.slots}, {_stride(size)}UL}}"
        for state, size in zip(parts.states, sizes, strict=True)
    ]
    table(writer, "state", "states", "STATES", rows)
    writer.line(f"enum {{ STATE_SLOTS = {max((state.slots for state in parts.states), default=1)} }};")


def _stride(size: int) -> int:
    """From slot to slot, of so many bytes each."""
    return max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


def _parts(
    writer: Writer, kernels: KernelGraph, parts: Parts, portions: Sequence[Portion], folders: Sequence[str]
) -> None:
    operands: list[Operand] = []
    afters: list[str] = []
    kept: list[str] = []
    rows = []
    carried = {Operand("input", state.input): Operand("state", at) for at, state in enumerate(parts.states)}
    each = zip(parts.parts, portions, folders, parts.kept_by(kernels), strict=True)
    for part, portion, folder, keeps in each:
        rows.append(
            f"{{{part.device}, {c_string(folder)}, {len(operands)}, {len(portion.inputs)}, {len(portion.outputs)}, "
            f"{len(afters)}, {len(part.after)}, {len(kept)}, {len(keeps)}, "
            f"{part.turns.every}, {sum(1 << turn for turn in part.turns.own)}}}"
        )
        operands += [*(carried.get(one, one) for one in portion.inputs), *portion.outputs]
        kept += [f"{{{parts.states.index(state)}}}" for state in keeps]
        afters += [f"{{{after.part}, {after.frames}}}" for after in part.after]
    table(writer, "operand", "operands", "OPERANDS", [f"{{{SPACES[one.space]}, {one.at}}}" for one in operands])
    table(writer, "after", "afters", "AFTERS", afters)
    table(writer, "kept", "kept", "KEPT", kept)
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
    carried = [{"output": state.output, "input": state.input} for state in parts.states]
    facts = {
        "devices": list(parts.devices),
        "cores": list(cores),
        "frames": parts.frames,
        "parts": described,
        "carried": carried,
    }
    return json.dumps(facts, sort_keys=True)
