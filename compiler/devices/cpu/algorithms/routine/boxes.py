"""Boxes chosen one after another (SelectBoxes), in C.

Every sum and product of what decides is rounded by itself: `volatile` keeps a compiler from contracting a product and
a sum into one operation, which would decide otherwise at equality.
"""

from __future__ import annotations

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload

EDGES = 5
"""Numbers kept of a box: least and greatest x, least and greatest y, area."""


class SelectBoxes(Lowering):
    """A heap gives the boxes of a row of scores in their order, as many as are asked for.

    In the lane's scratch lie the heap, the best box at its root, and the edges of the boxes chosen so far. A tile task
    is one row.
    """

    def __init__(self, name: str, workload: Workload, routine: Routine) -> None:
        self.name, self.workload, self.routine = name, workload, routine
        self.boxes, self.classes = workload.inputs[0].type.dims[1], workload.inputs[1].type.dims[1]
        self.most = workload.outputs[0].type.dims[2]

    @property
    def grid(self) -> None:
        """None: where a row lies is in its text only."""

    @property
    def tasks(self) -> int:
        """One for each class of each image."""
        return self.workload.outputs[1].type.elements

    def lower(self) -> Lowered:
        """The C functions of the routine."""
        writer, name = Writer(), self.name
        bounded = bool(self.routine.params["bounded"])
        boxes, scores, size, limit, overlap, *least = (slot.name for slot in self.routine.inputs)
        found, counts = (slot.name for slot in self.routine.outputs)
        _order(writer, name)
        _geometry(writer, name, centred=bool(self.routine.params["centred"]))
        note = f"of {self.boxes} boxes up to {self.most}, {self.tasks} times"
        with kernel_function(writer, name, self.workload, note):
            writer.line("int64_t *const heap = (int64_t *)scratch;")
            writer.line(f"float *const kept = (float *)(heap + {self.boxes});")
            writer.line(f"const long extent = {size}[0] < {self.boxes} ? {size}[0] : {self.boxes};")
            writer.line(f"const long most = {limit}[0] < {self.most} ? {limit}[0] : {self.most};")
            with writer.block("for (long row = begin; row < end; row++)"):
                writer.line(f"const float *const score = {scores} + row * {self.boxes};")
                writer.line(f"const float *const box = {boxes} + row / {self.classes} * {4 * self.boxes};")
                writer.line(f"int64_t *const to = {found} + row * {self.most};")
                writer.line("long left = 0, chosen = 0;")
                with writer.block("for (long at = 0; at < extent; at++)"):
                    may = f"score[at] > {least[0]}[0]" if bounded else "score[at] == score[at]"
                    writer.line(f"if ({may}) heap[left++] = at;")
                writer.line(f"for (long at = left / 2; at-- > 0;) {name}_sift(score, heap, at, left);")
                with writer.block("while (left > 0 && chosen < most)"):
                    writer.line(f"float *const edges = kept + {EDGES} * chosen;")
                    writer.line(f"{name}_edges(box + 4 * heap[0], edges);")
                    writer.line("long other = 0;")
                    test = f"{name}_overlap(edges, kept + {EDGES} * other) > {overlap}[0]"
                    writer.line(f"while (other < chosen && !({test})) other++;")
                    writer.line("if (other == chosen) to[chosen++] = heap[0];")
                    writer.line("heap[0] = heap[--left];")
                    writer.line(f"{name}_sift(score, heap, 0, left);")
                writer.line(f"{counts}[row] = chosen;")
                writer.line(f"for (; chosen < {self.most}; chosen++) to[chosen] = 0;")
        return Lowered(
            name, writer.text(), self.tasks, 8 * self.boxes + 4 * EDGES * self.most, headers=frozenset(writer.headers)
        )


def _order(writer: Writer, name: str) -> None:
    """C functions on places of a row without NaN: which comes first, and a heap in order with the first at its root."""
    with writer.block(f"static inline int {name}_before(const float *score, long one, long two)"):
        writer.line("return score[one] > score[two] || (score[one] == score[two] && one < two);")
    with writer.block(f"static void {name}_sift(const float *score, int64_t *heap, long at, long size)"):
        writer.line("const int64_t place = heap[at];")
        with writer.block("for (long child; (child = 2 * at + 1) < size; at = child)"):
            writer.line(f"if (child + 1 < size && {name}_before(score, heap[child + 1], heap[child])) child++;")
            writer.line(f"if (!{name}_before(score, heap[child], place)) break;")
            writer.line("heap[at] = heap[child];")
        writer.line("heap[at] = place;")


def _geometry(writer: Writer, name: str, *, centred: bool) -> None:
    """C functions: a box as its edges and area, and the intersection over union of two, 0 where there is no area."""
    with writer.block(f"static void {name}_edges(const float *box, float *edges)"):
        if centred:
            writer.line("const volatile float across = box[2] / 2, down = box[3] / 2;")
            writer.line("edges[0] = box[0] - across, edges[1] = box[0] + across;")
            writer.line("edges[2] = box[1] - down, edges[3] = box[1] + down;")
        else:
            for at, (one, other) in enumerate((("box[1]", "box[3]"), ("box[0]", "box[2]"))):
                low, high = f"{one} >= {other} ? {other} : {one}", f"{one} >= {other} ? {one} : {other}"
                writer.line(f"edges[{2 * at}] = {low}, edges[{2 * at + 1}] = {high};")
        writer.line("const volatile float area = (edges[1] - edges[0]) * (edges[3] - edges[2]);")
        writer.line("edges[4] = area;")
    with writer.block(f"static inline float {name}_overlap(const float *one, const float *two)"):
        for axis, (first, last) in (("x", (0, 1)), ("y", (2, 3))):
            writer.line(f"const float {axis}_first = one[{first}] < two[{first}] ? two[{first}] : one[{first}];")
            writer.line(f"const float {axis}_last = two[{last}] < one[{last}] ? two[{last}] : one[{last}];")
            writer.line(f"if ({axis}_last <= {axis}_first) return 0;")
        writer.line("const volatile float product = (x_last - x_first) * (y_last - y_first);")
        writer.line("const float common = product, whole = one[4] + two[4] - common;")
        writer.line("if (common <= 0 || one[4] <= 0 || two[4] <= 0 || whole <= 0) return 0;")
        writer.line("return common / whole;")
