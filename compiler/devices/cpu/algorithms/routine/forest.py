"""Decision trees (Forest), in C: GROUP of them walked at once, for a few samples before the next ones."""

from __future__ import annotations

from compiler.codegen.scalars import C_TYPES
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ops.forest import AGGREGATES, GROUP, layout_of

ROWS = 32
"""Samples for which a group's nodes stay in the nearest cache."""
LEVEL_NS = 0.75
"""A step of one sample in one tree."""


def forest_seconds(routine: Routine) -> float:
    """By the model: each sample takes every level of every group."""
    samples = routine.outputs[0].type.dims[0]
    return 1e-9 * LEVEL_NS * samples * GROUP * sum(level + 1 for level in _levels(routine))


def _levels(routine: Routine) -> list[int]:
    levels = routine.params["levels"]
    assert isinstance(levels, tuple)
    return [level for level in levels if isinstance(level, int)]


class Forest(Lowering):
    """A tile task is one sample.

    Nothing branches on data: a step is a comparison and two additions, and the eight walks of a group hide each other's
    latencies. The leaves of a group are combined in pairs, groups in their order.
    """

    def __init__(self, name: str, workload: Workload, routine: Routine) -> None:
        self.name, self.workload, self.routine = name, workload, routine

    @property
    def grid(self) -> None:
        """None: where a sample lies is in its text only."""

    @property
    def tasks(self) -> int:
        """One for each row."""
        return self.workload.outputs[0].type.dims[0]

    def lower(self) -> Lowered:
        """The C functions of the routine."""
        writer, name, routine = Writer(), self.name, self.routine
        x, _, roots, firsts, weights, *size = (slot.name for slot in routine.inputs)
        (y,) = (slot.name for slot in routine.outputs)
        features, targets = routine.inputs[0].type.dims[1], routine.outputs[0].type.dims[1]
        width = routine.inputs[4].type.dims[1]
        levels = _levels(routine)
        real = C_TYPES[routine.inputs[0].type.dtype]
        combine = routine.params["aggregate"]
        assert combine in AGGREGATES
        start = {"SUM": "0", "MIN": "INFINITY", "MAX": "-INFINITY"}[str(combine)]
        self._step(writer, real)
        self._combine(writer, real)
        table = ", ".join(map(str, levels))
        writer.line(f"static const unsigned char {name}_levels[{len(levels)}] = {{{table}}};")
        note = f"{GROUP * len(levels)} trees of up to {max(levels)} levels, {self.tasks} times"
        with kernel_function(writer, name, self.workload, note):
            if size:
                writer.line(
                    f"const long real = {size[0]}[0] < end ? {size[0]}[0] < begin ? begin : {size[0]}[0] : end;"
                )
                zeros = f"(size_t)(end - real) * {targets} * sizeof({real})"
                writer.line(f"memset({y} + real * {targets}, 0, {zeros});")
                writer.line("end = real;")
            with writer.block(f"for (long first = begin; first < end; first += {ROWS})"):
                writer.line(f"const long past = end - first < {ROWS} ? end : first + {ROWS};")
                writer.line(f"for (long at = first * {targets}; at < past * {targets}; at++) {y}[at] = {start};")
                with writer.block(f"for (long group = 0; group < {len(levels)}; group++)"):
                    writer.line(f"const int32_t *const root = {roots} + group * {GROUP};")
                    writer.line(f"const int32_t *const target = {firsts} + group * {GROUP};")
                    with writer.block("for (long row = first; row < past; row++)"):
                        self._group(writer, f"{x} + row * {features}", f"{y} + row * {targets}", width, weights)
        return Lowered(name, writer.text(), self.tasks, headers=frozenset(writer.headers))

    def _step(self, writer: Writer, real: str) -> None:
        """C functions: the node after a node for a sample's features, and a leaf's row of weights."""
        name, params = self.name, self.routine.params
        layout = layout_of(self.routine.inputs[1].type.dtype)
        bits, word = layout.step_bits, C_TYPES[layout.word]
        head = f"static inline size_t {name}_step(const {real} *x, const {word} *nodes, size_t at)"
        with writer.block(head):
            writer.line(f"const {word} rest = nodes[2 * at + 1];")
            writer.line(f"{real} asked;")
            writer.line("memcpy(&asked, nodes + 2 * at, sizeof asked);")
            writer.line(f"const {real} value = x[(u{word})rest >> {bits} & {(1 << layout.feature_bits) - 1}];")
            no = f"!(value {'<' if params['strict'] else '<='} asked)"
            if params["missing"]:
                no = f"({no} & !((value != value) & (rest < 0)))"
            writer.line(f"return at + (size_t)(long)(int{bits}_t)rest + {no};")
        with writer.block(f"static inline size_t {name}_leaf(const {word} *nodes, size_t at)"):
            writer.line(f"return (size_t)(nodes[2 * at] & {(1 << layout.leaf_bits) - 1});")

    def _combine(self, writer: Writer, real: str) -> None:
        form = {"SUM": "a + b", "MIN": "b < a ? b : a", "MAX": "b > a ? b : a"}[str(self.routine.params["aggregate"])]
        head = f"static inline {real} {self.name}_both({real} a, {real} b)"
        with writer.block(head):
            writer.line(f"return {form};")

    def _group(self, writer: Writer, x: str, y: str, width: int, weights: str) -> None:
        """The walks of a group of trees for one sample."""
        name, nodes = self.name, self.routine.inputs[1].name
        real = C_TYPES[self.routine.inputs[0].type.dtype]
        writer.line(f"const {real} *const from = {x};")
        writer.line(f"{real} *const to = {y};")
        writer.line("size_t " + ", ".join(f"at{tree} = (size_t)root[{tree}]" for tree in range(GROUP)) + ";")
        with writer.block(f"for (int level = {name}_levels[group]; level > 0; level--)"):
            for tree in range(GROUP):
                writer.line(f"at{tree} = {name}_step(from, {nodes}, at{tree});")
        for tree in range(GROUP):
            leaf = f"{width} * {name}_leaf({nodes}, at{tree})"
            writer.line(f"const {real} *const leaf{tree} = {weights} + {leaf};")
        if width == 1 and self.routine.outputs[0].type.dims[1] > 1:
            for tree in range(GROUP):
                writer.line(f"to[target[{tree}]] = {name}_both(to[target[{tree}]], *leaf{tree});")
            return
        writer.line("(void)target;")
        values = [f"leaf{tree}[at]" for tree in range(GROUP)]
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [f"{name}_both({one}, {other})" for one, other in pairs]
        writer.line(f"for (long at = 0; at < {width}; at++) to[at] = {name}_both(to[at], {values[0]});")
