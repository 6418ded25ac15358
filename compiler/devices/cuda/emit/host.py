"""model.c of a CUDA program.

The images of its kernels and the plan as tables, before the runtime that is the same for every model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.host_tables import SPACES, Operand, c_string, description, ports, table
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.emit.drivers import INTERFACE, oldest_driver
from compiler.devices.cuda.emit.flow import Flow, Item, Node
from compiler.devices.cuda.emit.persistent import TIMED_AT
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan

EMBED = r"""
/* An image of compiled kernels, in a section of its own, from which it can be taken out again. */
#define EMBED(symbol, file)                                            \
    __asm__(".pushsection .tw." file ", \"a\"\n"                      \
            ".balign 64\n"                                             \
            ".globl " #symbol "\n"                                     \
            ".hidden " #symbol "\n"                                    \
            #symbol ":\n"                                              \
            ".incbin \"" file "\"\n"                                   \
            ".popsection\n");                                          \
    extern const unsigned char symbol[] __attribute__((visibility("hidden")));
"""


@dataclass(frozen=True)
class Image:
    """What one unit was compiled to for one architecture: `sm_90a` (machine code) or `compute_90` (PTX)."""

    unit: int
    architecture: str
    content: bytes

    @property
    def file(self) -> str:
        """Where `.incbin` finds it."""
        return f"kernels_{self.unit}.{self.architecture}.{'cubin' if self.architecture.startswith('sm_') else 'ptx'}"

    @property
    def symbol(self) -> str:
        """The name of the image in the host's code."""
        return f"image_{self.unit}_{self.architecture}"


def cuda_host_source(
    kernels: KernelGraph,
    plan: Plan,
    flow: Flow,
    units: Sequence[Sequence[CudaLowered]],
    images: Sequence[Image],
    weight_bytes: int,
    nvrtc: tuple[int, int],
    *,
    split: int | None = None,
) -> str:
    """The text of model.c.

    `split` is the part of shared memory, in percent, that all of them ask for; None: none does.
    """
    writer = Writer()
    writer.line('#include "model.h"')
    writer.line("#include <stddef.h>")
    writer.line()
    _structs(writer)
    _images(writer, images, len(units), nvrtc)
    ports(writer, kernels)
    order = {kernel.name: at for at, kernel in enumerate(kernel for unit in units for kernel in unit)}
    _kernels(writer, units)
    _nodes(writer, flow.nodes, order)
    if flow.decisions:
        _decisions(writer, flow)
    writer.line(f"enum {{ CALLS = {len(kernels.calls)} }};")
    major, minor = nvrtc
    port_bytes = sum(kernels.buffers[port].type.bytes for port in (*kernels.inputs, *kernels.outputs))
    sizes = {
        "ARENA_BYTES": plan.arena_bytes,
        "WEIGHT_BYTES": weight_bytes,
        "SCRATCH_BYTES": flow.scratch_bytes,
        "COUNTER_BYTES": flow.counter_bytes,
    }
    for name, size in (*sizes.items(), ("NEEDED_BYTES", sum(sizes.values()) + port_bytes)):
        writer.line(f"#define {name} {size}UL")
    writer.line(f"#define NVRTC_VERSION {1000 * major + 10 * minor}")
    if split is not None:
        writer.line(f"#define SHARED_SPLIT {split} /* percent that is shared memory, the rest is L1 */")
    if flow.times_at is not None:
        writer.line(
            f"enum {{ TIMED_AT = {TIMED_AT}, TIMES_AT = {flow.times_at} }}; /* bytes behind the first counter */"
        )
    writer.line(f"#define INTERFACE_VERSION {INTERFACE}")
    architectures = list(dict.fromkeys(image.architecture for image in images))
    writer.line(f"#define ARCHITECTURES {c_string(', '.join(architectures))}")
    drivers = {name: _version(oldest_driver(name, nvrtc)) for name in architectures}
    described = json.loads(description(kernels, plan, weight_bytes))
    described |= {"architectures": architectures, "drivers": drivers}
    writer.line(f"static const char description[] = {c_string(json.dumps(described, sort_keys=True))};")
    writer.line()
    writer.line('#include "tw_cuda_runtime.h"')
    return writer.text()


def _structs(writer: Writer) -> None:
    spaces = [*SPACES.values(), "SPACE_SCRATCH", "SPACE_COUNTERS"]
    writer.line(f"enum space {{ {', '.join(spaces)} }};")
    writer.line("enum kind { IMAGE_CODE, IMAGE_SPECIFIC, IMAGE_PTX }; /* SPECIFIC: for one compute capability alone */")
    writer.line("struct port { int32_t code, bits, ndim; const int64_t *shape; size_t bytes; };")
    writer.line(
        "struct kernel { const char *name; int unit; unsigned grid, block, shared_bytes, cluster; int waits; };"
    )
    writer.line("struct operand { enum space space; int port; long offset; };")
    writer.line("struct node { int kernel, first_operand, operands, first_call, calls, first_edge, edges; };")
    writer.line()


def _images(writer: Writer, images: Sequence[Image], units: int, nvrtc: tuple[int, int]) -> None:
    """The images, each in a section of its own, and the table of architectures, with the driver that each needs."""
    for line in EMBED.strip().splitlines():
        writer.line(line)
    for image in images:
        writer.line(f'EMBED({image.symbol}, "{image.file}")')
    writer.line(f"enum {{ UNITS = {units} }};")
    writer.line(
        "struct image { const char *architecture; int capability, driver; enum kind kind; "
        "const unsigned char *units[UNITS]; };"
    )
    architectures = dict.fromkeys(image.architecture for image in images)
    rows = []
    for name in architectures:
        symbols = ", ".join(image.symbol for image in images if image.architecture == name)
        numbers = f"{int(re.sub(r'[^0-9]', '', name))}, {oldest_driver(name, nvrtc)}"
        rows.append(f'{{"{name}", {numbers}, {_kind(name)}, {{{symbols}}}}}')
    table(writer, "image", "images", "IMAGES", rows)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _kind(architecture: str) -> str:
    if architecture.startswith("compute_"):
        return "IMAGE_PTX"
    return "IMAGE_SPECIFIC" if architecture.endswith("a") else "IMAGE_CODE"


def _kernels(writer: Writer, units: Sequence[Sequence[CudaLowered]]) -> None:
    rows = [
        f'{{"{one.name}", {unit}, {one.grid}, {one.block}, {one.shared_bytes}, {one.cluster}, {int(one.waits)}}}'
        for unit, members in enumerate(units)
        for one in members
    ]
    table(writer, "kernel", "kernels", "KERNELS", rows)


def _nodes(writer: Writer, nodes: Sequence[Node], kernels: Mapping[str, int]) -> None:
    """The tables of launches and of what they are given, whose calls they carry out, after which others."""
    rows: list[str] = []
    operands: list[Operand] = []
    calls: list[str] = []
    edges: list[str] = []
    for node in nodes:
        spans = (len(operands), len(node.operands), len(calls), len(node.calls), len(edges), len(node.after))
        rows.append(f"{{{kernels[node.kernel.name]}, {', '.join(map(str, spans))}}}")
        operands += node.operands
        calls += map(str, node.calls)
        edges += map(str, node.after)
    table(writer, "operand", "operands", "OPERANDS", operands)
    table(writer, "node", "nodes", "NODES", rows)
    for name, kind, of in (("calls", "calls of the plan", calls), ("edges", "positions in nodes[]", edges)):
        writer.line(f"static const int {name}[] = {{{', '.join(of) or '0'}}}; /* {kind} */")
    writer.line(f"enum {{ MOST_OPERANDS = {max((len(node.operands) for node in nodes), default=0)} }};")
    writer.line(f"enum {{ MOST_EDGES = {max((len(node.after) for node in nodes), default=0)} }};")


def _decisions(writer: Writer, flow: Flow) -> None:
    """The tables of graphs, of sequences of graphs and decisions, and of what is read before it is decided."""
    writer.line("struct graph { int first_node, end; };")
    writer.line("struct item { int graph, decision; }; /* one of the two; the other is -1 */")
    writer.line("struct sequence { int first_item, items; };")
    writer.line("struct answer { int is_there; struct operand at; };")
    writer.line("struct answers { int64_t trips; uint8_t going; };")
    writer.line("struct decision { int is_loop; int64_t most; struct answer trips, going, again; int bodies[2]; };")
    writer.line()
    table(writer, "graph", "graphs", "GRAPHS", [f"{{{span.start}, {span.stop}}}" for span in flow.graphs])
    items: list[Item] = []
    rows = []
    for sequence in flow.sequences:
        rows.append(f"{{{len(items)}, {len(sequence)}}}")
        items += sequence
    each = [tuple(-1 if at is None else at for at in (item.graph, item.decision)) for item in items]
    table(writer, "item", "items", "ITEMS", [f"{{{graph}, {decision}}}" for graph, decision in each])
    table(writer, "sequence", "sequences", "SEQUENCES", rows)
    rows = []
    for one in flow.decisions:
        answers = ", ".join(f"{{1, {at}}}" if at else "{0}" for at in (one.trips, one.going, one.again))
        most = one.loop.most if one.loop else 0
        rows.append(f"{{{int(one.loop is not None)}, {most}, {answers}, {{{', '.join(map(str, one.bodies))}}}}}")
    table(writer, "decision", "decisions", "DECISIONS", rows)
