"""Products of many rows by a constant of few bits: `quantised_mma` and its like, as those without the word multiply.

The constant stays codes in memory (`codegen.codes`). The threads of a block load the words of a later step while they
multiply one, make floats of them, rounded once to what the product takes, and store these to shared memory; pipeline,
products, split k and maps are those of any contraction (`products.lowering`). What is multiplied is to the bit what the
dense constant would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.codes import HEADER, WORD_BITS, BlockCodes
from compiler.devices.cuda.codegen.fragments import Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand, Side
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES
from compiler.devices.cuda.products.costs import (
    LATENCY_NS,
    Block,
    cheapest,
    dense_block,
)
from compiler.devices.cuda.products.floats import CALLED, plain_a, plain_stage_bytes, product_by, times_loaded
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.pipeline import pipelined
from compiler.devices.cuda.products.tiles import (
    MOST_OFFSET,
    MOST_PROPOSALS,
    Shape,
    Sizes,
    block_tiles,
    depths_of,
    inner_of,
    products_of,
    shape_of,
    sizes_of,
)
from compiler.devices.cuda.products.warpgroups import (
    LAG,
    STAGES,
    WARPGROUP_TILES,
    dense_warpgroups,
    has_warpgroups,
    is_copied_whole,
)
from compiler.devices.cuda.products.wgmma import WgmmaProduct
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.encodings.quantised import Quantised
from compiler.forms.contraction import Contraction, as_contraction
from compiler.forms.quantised_panels import quantised_along_k
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

DENSE_NAMES: Mapping[str, str] = {
    f"quantised_{name}": name for name in ("mma", "mma_tf32", "mma_3xtf32", "ffma", "wgmma")
}
"""By what tiles call them: the dense product that multiplies in the same way."""
UNPACKING = 5.0
"""Instructions for a code: made a float (3.5), rounded, and its part of a store."""


@dataclass(frozen=True)
class QuantisedProduct:
    """A product y[m, n] = sum over k of A B, whose B was quantised in blocks along k."""

    view: Contraction
    position: int
    matrix: Panels
    codes: Quantised


def as_quantised(workload: Workload) -> QuantisedProduct | None:
    """The matrix form of a kernel with such a constant, read by the product alone; else None."""
    if not any(isinstance(one, Quantised) for each in workload.encodings for one in each):
        return None
    view = as_contraction(workload)
    if view is None or view.batches != 1 or not view.rows * view.columns * view.depth:
        return None
    for position, panels, codes in quantised_along_k(view, workload, 1):
        if times_loaded(view, workload.kernel.inputs[position].name) == 1:
            return QuantisedProduct(view, position, replace(panels, panel=0), codes)
    return None


def cuda_quantised_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product by such a constant."""
    form = as_quantised(workload)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)):
        return []
    ways = [
        (name, replace(shape_of(form.view, workload, element), b=None))
        for name, element in products_of(form.view, workload, precision)
    ]
    if has_warpgroups(target):
        ways += [("wgmma", shape) for name, shape in ways if name == "mma" and is_copied_whole(shape)]
    return [*_cheapest(tuple(ways), form.codes, target)]


@lru_cache(maxsize=256)
def _cheapest(ways: tuple[tuple[str, Shape], ...], codes: Quantised, target: CudaTarget) -> tuple[Proposal, ...]:
    blocks = (((name, sizes), _block(name, shape, sizes, codes, target)) for name, shape, sizes in _sized(ways, target))

    def tile(of: tuple[str, Sizes]) -> Tile:
        name, sizes = of
        return Tile(f"quantised_{name}", sizes.levels("warpgroup" if name == "wgmma" else inner_of(name)))

    return tuple(cheapest(blocks, MOST_PROPOSALS, target, tile, in_seconds=True))


def _sized(ways: tuple[tuple[str, Shape], ...], target: CudaTarget) -> Iterator[tuple[str, Shape, Sizes]]:
    """Each way with the sizes of its tiles; of warps two stages, since one step ahead goes through registers."""
    for name, shape in ways:
        depths = depths_of(shape.element)
        if name == "wgmma":
            each = sizes_of(WARPGROUP_TILES, depths, shape, target, STAGES[:1], LAG)
        else:
            each = sizes_of(block_tiles(name), depths, shape, target, (2,))
        yield from ((name, shape, sizes) for sizes in each)


def _block(name: str, shape: Shape, sizes: Sizes, codes: Quantised, target: CudaTarget) -> Block | None:
    """A block of the dense product whose B comes as codes, which its threads make floats of."""
    by_groups = name == "wgmma"
    block = dense_warpgroups(shape, sizes, target) if by_groups else dense_block(name, shape, sizes, target)
    if block is None:
        return None
    values = sizes.n * sizes.depth
    words = -(-values * codes.bits // WORD_BITS // block.threads)
    moved = sizes.m * sizes.depth * shape.element.bytes
    moved += values * codes.bits // 8 + values // codes.block * (codes.scale // 8 + (not codes.centred))
    step = replace(
        block.step,
        nbytes=moved,
        cycles=block.step.cycles + values * UNPACKING / WARP / 4,
        least_ns=max(block.step.least_ns, LATENCY_NS),
    )
    return replace(block, registers=block.registers + words * (3 - codes.centred), step=step)


def lower_cuda_quantised(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_quantised` accepts, under a tile of `cuda_quantised_tiles`: levels as of the dense product."""
    form = as_quantised(workload)
    assert form is not None, "the tile stage offers it only to kernels of that form"
    return pipelined(name, workload, form.view, tile, CodedOperands(form), target).lower()


@dataclass(frozen=True)
class CodedOperands:
    """A as it lies, B as codes."""

    form: QuantisedProduct
    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = HEADER
    called: ClassVar[Mapping[str, str]] = {
        name: f"{CALLED[dense]}, of codes made floats" for name, dense in DENSE_NAMES.items()
    }

    def product(self, of: CudaContraction) -> Product:
        """As the dense algorithm multiplies."""
        dense, half = DENSE_NAMES[of.tile.algorithm], half_of(of.view, of.workload, exact=False)
        if half is None or dense not in ("mma", "wgmma"):
            return product_by(dense, of.tile, DType.F32)
        if dense == "mma":
            return product_by(dense, of.tile, half)
        return WgmmaProduct(half, of.m, of.n, of.tile.extent("warpgroup", "m"), of.tile.extent("warpgroup", "n"))

    def a(self, of: CudaContraction) -> Operand:
        """Where it lies."""
        return plain_a(of)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed."""
        side = of.side("b", of.view.b, (of.view.n,), "first_n", of.n)
        _, packing = self.packing(of)
        return CodedColumns(side, packing, of.workload.kernel.inputs[self.form.position].name)

    def packing(self, of: CudaContraction) -> tuple[int, BlockCodes]:
        """In tiles of steps and columns."""
        return self.form.position, BlockCodes(self.form.matrix, of.n, of.depth, self.form.codes)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both, as floats."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class CodedColumns:
    """Words of codes through registers, each with the scale and perhaps the zero point of its block."""

    side: Side
    packing: BlockCodes
    slot: str

    rounded = True
    is_constant = True
    in_registers = True
    is_bulk = False

    @property
    def _numbers(self) -> int:
        """Of a word."""
        return WORD_BITS // self.packing.codes.bits

    @property
    def _across(self) -> int:
        """Words of a row."""
        return self.side.depth // self._numbers

    @property
    def _parts(self) -> Iterator[tuple[str, str]]:
        """C types and names of what is held for each word."""
        yield from (("unsigned", "codes"), ("float", "scale"))
        if not self.packing.codes.centred:
            yield "unsigned char", "zero"

    @contextmanager
    def _words(self, writer: Writer) -> Iterator[None]:
        """The body of a loop over the thread's words, each with its number `word` in the tile."""
        count, threads = self.packing.words, self.side.threads
        with unrolled(writer, -(-count // threads), "i"):
            writer.line(f"const int word = thread + i * {threads};")
            with writer.block(f"if (word < {count})" if count % threads else ""):
                yield

    def declare(self, writer: Writer) -> None:
        """Pointers to the tile's codes, scales and zero points, and registers for the thread's words of a step."""
        name, stored, tile = self.side.name, self.packing.stored, f"(size_t)({self.side.first} / {self.side.tile})"
        codes = self.packing.codes
        writer.line(f"/* {name.upper()}: codes of {codes.bits} bits, {codes.block} of k with a scale */")
        begin = {"codes": 0, "scale": stored.scales_at, "zero": stored.zeros_at}
        each = {"codes": self.packing.down * self.packing.words, **dict.fromkeys(("scale", "zero"), self._scales)}
        for kind, part in self._parts:
            at = f"tw_early((const {kind} *)({self.slot} + {begin[part]}))"
            writer.line(f"const {kind} *const {name}_{part}_from = {at} + {tile} * {each[part]};")
            writer.line(f"{kind} {name}_{part}[{-(-self.packing.words // self.side.threads)}];")

    @property
    def _scales(self) -> int:
        """Of a tile of n."""
        return self.packing.stored.blocks * self.side.tile

    def fetch(self, writer: Writer) -> None:
        """Loads this thread's words of a step, and the scales and zero points of their blocks."""
        name, side = self.side.name, self.side
        with self._words(writer):
            writer.line(f"{name}_codes[i] = {name}_codes_from[step * {self.packing.words} + word];")
            k = f"(unsigned)step * {side.depth} + word % {self._across} * {self._numbers}"
            block = self.packing.stored.block_of(k)
            writer.line(f"const int block = (int)({block}) * {side.tile} + word / {self._across};")
            for _, part in [*self._parts][1:]:
                writer.line(f"{name}_{part}[i] = {name}_{part}_from[block];")

    def put(self, writer: Writer) -> None:
        """Makes floats of the words and stores them to shared memory, up to 16 bytes at once."""
        name, side, codes = self.side.name, self.side, self.packing.codes
        size, count = side.element.bytes, min(16 // side.element.bytes, self._numbers)
        kind = f"tw_vector<{CUDA_TYPES[side.element]}, {count}>"
        zero = f"{1 << (codes.bits - 1)}.0f" if codes.centred else f"(float){name}_zero[i]"
        with self._words(writer):
            writer.line(f"float w[{self._numbers}];")
            writer.line(f"tw_weights<{codes.bits}>(w, {name}_codes[i], {name}_scale[i], {zero});")
            with unrolled(writer, self._numbers // count, "piece"):
                writer.line(f"{kind} stored;")
                with unrolled(writer, count, "part"):
                    element = side.converted(f"w[piece * {count} + part]", DType.F32)
                    writer.line(f"stored.element[part] = {element};")
                byte = f"(word % {self._across} * {self._numbers * size} + piece * {count * size})"
                place = side.layout.place(f"(word / {self._across})", byte)
                writer.line(f"*({kind} *)(into + {place}) = stored;")


QUANTISED = CudaAlgorithm(
    tuple(DENSE_NAMES),
    cuda_quantised_tiles,
    lower_cuda_quantised,
    in_fp32=frozenset({"quantised_ffma", "quantised_mma_3xtf32"}),
)
