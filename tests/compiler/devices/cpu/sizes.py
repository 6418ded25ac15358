"""Kernels whose results are bounded by sizes that are given while running, beside the same ones that skip nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from tests.compiler.devices.cpu.library import Case, Library, assert_close

SCALAR = TensorType(DType.I64, ())


def bounded(kernel: Kernel, dims: Sequence[int], value: float = 0.0) -> Kernel:
    """The kernel with its last result kept below a size along each of some dimensions, `value` beyond.

    The sizes are its last inputs.
    """
    out, last = kernel.outputs[-1], kernel.blocks[-1]
    (store,) = (store for store in last.stores if store.slot == out.name)
    kept: Expr = Load("unbounded", store.index, out.type.dtype)
    for dim in dims:
        test = Apply("lt", (Position(store.index[dim]), Load(f"size{dim}", (), DType.I64)))
        kept = Where(test, kept, Const(value, out.type.dtype))
    computing = replace(last, stores=tuple(Store("unbounded", s.index) if s == store else s for s in last.stores))
    return replace(
        kernel,
        inputs=(*kernel.inputs, *(Slot(f"size{dim}", SCALAR) for dim in dims)),
        temps=(*kernel.temps, Slot("unbounded", out.type)),
        blocks=(*kernel.blocks[:-1], computing, Block(last.axes, (kept,), (store,))),
    )


def bounded_case(case: Case, dims: Sequence[int], value: float = 0.0) -> Case:
    """The same for a kernel with its operands; sizes are 0 until `Sized` runs it."""
    count = len(case.kernel.inputs)
    sizes = tuple(Buffer.whole(count + at, SCALAR) for at in range(len(dims)))
    outputs = tuple(replace(b, id=b.id + len(dims), storage=b.storage + len(dims)) for b in case.buffers[count:])
    arrays = (*case.inputs, *(np.zeros((), np.int64) for _ in dims))
    buffers = (*case.buffers[:count], *sizes, *outputs)
    return replace(case, kernel=bounded(case.kernel, dims, value), buffers=buffers, inputs=arrays)


def with_margin(case: Case, margin: int) -> Case:
    """A bounded case of which nobody reads more than so many elements behind each size; -1: all are read."""
    sizes = {int(slot.name.removeprefix("size")) for slot in case.kernel.inputs if slot.name.startswith("size")}
    last = case.buffers[-1]
    margins = tuple(margin if dim in sizes else -1 for dim in range(last.type.rank))
    return replace(case, buffers=(*case.buffers[:-1], replace(last, margins=margins if margin >= 0 else ())))


def read(case: Case, array: np.ndarray) -> np.ndarray:
    """The elements of a case's last result that somebody reads."""
    sizes = {slot.name: given for slot, given in zip(case.kernel.inputs, case.inputs, strict=True)}
    margins = case.buffers[-1].margins
    ends = [
        max(int(sizes[f"size{dim}"]), 0) + margin if margin >= 0 else array.shape[dim]
        for dim, margin in enumerate(margins)
    ]
    return array[tuple(slice(0, min(end, 1 << 30)) for end in ends)]


def unskipped(kernel: Kernel) -> Kernel:
    """The same numbers from a kernel whose conditions nobody takes for bounds: sizes are computed, by adding 0."""

    def hidden(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.type is DType.I64 and not expr.index:
            return Apply("add", (expr, Const(0, DType.I64)))
        return expr

    blocks = (replace(block, values=tuple(v.transform(hidden) for v in block.values)) for block in kernel.blocks)
    return replace(kernel, blocks=tuple(blocks))


def sizes_of(extent: int, random: np.random.Generator) -> list[int]:
    """Sizes at which code that stops at one goes wrong, and random ones; some that no caller may give."""
    near = {base + by for base in (0, 1, 8, 16, 28, 32, extent) for by in (-1, 0, 1)}
    drawn = {int(size) for size in random.integers(0, extent + 1, 3)}
    return [*sorted({size for size in near | drawn if 0 <= size <= extent}), -3, extent + 7, 1 << 40, -(1 << 62)]


@dataclass
class Sized:
    """Bounded cases in one library, each beside the one that skips nothing."""

    cases: Sequence[Case]
    library: Library

    @staticmethod
    def of(cases: Sequence[Case], target: CpuTarget, optimise: str = "-O1") -> Sized:
        both = [*cases, *(replace(case, kernel=unskipped(case.kernel)) for case in cases)]
        return Sized(cases, Library.of(both, target, optimise))

    def skips(self, number: int) -> bool:
        """Whether a case leaves out tasks, points or register tiles, as the one beside it does not."""
        texts = [self.library.lowered[at].text for at in (number, number + len(self.cases))]
        return any(mark in texts[0] and mark not in texts[1] for mark in ("continue;", "const long clipped_"))

    def check(self) -> None:
        """Every case at many sizes: what its kernel means, and bit for bit what comes of skipping nothing."""
        random = np.random.default_rng(5)
        for number, case in enumerate(self.cases):
            for given in self._given(case, random):
                description = f"sizes {[int(a) for a in given if a.shape == ()]}\n{case}"
                run = replace(case, inputs=given)
                got = self.library.run(number, run)
                whole = self.library.run(number + len(self.cases), replace(run, kernel=unskipped(case.kernel)))
                wanted = evaluate(case.kernel, given)
                results = [list(each) for each in (got, whole, wanted)]
                for each in results:
                    each[-1] = read(run, each[-1])
                for one, other, want in zip(*results, strict=True):
                    text = f"{description}\n{self.library.lowered[number].text}"
                    assert one.tobytes() == other.tobytes(), text
                    assert_close(one, want, case.tolerance, text)

    @staticmethod
    def _given(case: Case, random: np.random.Generator) -> Iterator[tuple[np.ndarray, ...]]:
        """The inputs with sizes, one after the other through those of the longest bounded dimension."""
        at = [n for n, slot in enumerate(case.kernel.inputs) if slot.type == SCALAR]
        extent = max(case.kernel.outputs[-1].type.dims, default=1)
        for size in sizes_of(min(extent, 40), random):
            arrays = list(case.inputs)
            for turn, place in enumerate(at):
                arrays[place] = np.array(size if turn == 0 else int(random.integers(0, extent + 1)), np.int64)
            yield tuple(arrays)
