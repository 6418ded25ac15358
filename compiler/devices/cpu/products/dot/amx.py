"""Steps by tiles (Intel AMX): one instruction multiplies 16 rows of A with 16 columns of B.

Eight registers hold tiles of up to 16 rows of 64 bytes. A and B are held as `bf16` and `integer` hold them for their
dot products: rows of groups of k, and panels in which the groups of 16 columns lie side by side. So a tile of A is 16
rows of 16 groups, one of B 16 groups of 16 columns, and one instruction (TDPBF16PS, TDPBUSD) adds all their products to
a tile of 16 x 16 sums, in the time of 16 vector instructions that do a sixteenth of it each.

A register tile is one to four parts of equally many rows, by one to four vectors of columns. Where the rows are no
multiple of the parts, the last part begins earlier and computes some rows again. What is left of k beyond whole tiles
has registers of its own, since a register's shape is fixed when registers are configured, which takes as long as ten
products: once a call, and twice more where a block's last rows are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.blocking import even_part
from compiler.devices.cpu.codegen.amx import A_REST, B_REST, COLUMNS, GROUPS, ROWS, SUMS, A, B
from compiler.devices.cpu.products.dot.lowering import DotContraction
from compiler.devices.cpu.products.dot.tiles import DotProduct
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import LINE_BYTES
from compiler.forms.groups import LANE_BYTES
from compiler.ir.tensor import DType

CYCLES_PER_FMA = 0.5
"""Of a core with tiles: it has two units for vectors of fp32."""


@dataclass(frozen=True)
class TileProduct(DotProduct):
    """A contraction as tiles of AMX see it; `steps_per_ns` counts as if each vector of sums were added by itself."""

    def registers(self, target: CpuTarget) -> Iterator[tuple[int, int]]:
        """Rows and vectors: as many parts of up to 16 rows as registers for sums allow, and fewer."""
        for vectors in self.widths(1, target):
            heights = {even_part(self.view.rows, ROWS * parts) for parts in range(1, SUMS // vectors + 1)}
            yield from ((rows, vectors) for rows in sorted(heights))

    def row_room(self, columns: int, target: CpuTarget) -> int:
        """Half of the first-level cache where all panels stay in the second: so results are written row by row."""
        is_small = columns * self.steps * LANE_BYTES <= target.l2_bytes // 2
        return target.l1_bytes // 2 if is_small else target.l2_bytes // 2

    def sums_ns(self, rows: int, vectors: int, target: CpuTarget) -> float:
        """Nanoseconds that the products of a register tile take.

        A product takes a cycle for each row; the first one with a tile of B takes 16 at least. Tiles that do not stay
        in the first-level cache come from the second.
        """
        return self.tile_ns(-(-self.steps // GROUPS), rows, vectors, target)

    def tile_ns(self, steps: int, rows: int, vectors: int, target: CpuTarget) -> float:
        """The same of so many tiles of k."""
        parts, part = parts_of(rows)
        cycle = 1 / (CYCLES_PER_FMA * target.rates.fma_per_ns)
        products = vectors * (max(part, ROWS) + (parts - 1) * part) * cycle
        loads = LINE_BYTES * (GROUPS * vectors + rows) / target.rates.l2_per_ns
        return steps * max(products, loads)


def parts_of(rows: int) -> tuple[int, int]:
    """Into how many parts rows are cut, and how many rows each has."""
    parts = -(-rows // ROWS)
    return parts, -(-rows // parts)


@dataclass(frozen=True)
class Registers:
    """Those of a product's register tiles.

    block_rows    rows of a block, of which the last one may have fewer
    tiles_before  how many register tiles of a panel come before that which begins at `row0`, in C
    """

    product: DotContraction
    block_rows: int
    tiles_before: str

    @property
    def _dot(self) -> str:
        """The C macro of a product."""
        return "tw_tile_dot_bf16" if self.product.held.total is DType.F32 else "tw_tile_dot_bytes"

    def begin(self, rows: int) -> None:
        """The registers get the shapes of register tiles of so many rows."""
        self.product.writer.line(f"tw_tiles_begin(&{self.shapes(rows)});")

    def multiply(self, rows: int) -> str:
        """With the place of what is fetched meanwhile: this register tile's share of the next panel of constants."""
        product = self.product
        share = self.lines_ahead * LINE_BYTES * (product.groups.groups // GROUPS)
        if not share:
            return f"{product.name}_{rows}(a, b, c, 0);"
        first = f"tile - begin < {product.column_blocks}"
        at = f"{self.tiles_before} * {share}L"
        is_more = f"{at} < {product.panel_bytes}L"
        return f"{product.name}_{rows}(a, b, c, {first} && {is_more} ? b + {product.panel_bytes}L + {at} : 0);"

    @property
    def lines_ahead(self) -> int:
        """How many lines of the next panel are fetched at each whole tile of k, so that a block's rows fetch it all."""
        shape = self.product.shape
        return -(-GROUPS * shape.vectors // -(-self.block_rows // shape.rows)) if self.product.packing else 0

    def shapes(self, rows: int) -> str:
        """The name of the table of registers' shapes."""
        return f"{self.product.name}_{rows}_shapes"

    def clear_sums(self, rows: int) -> None:
        """All sums of a register tile are 0."""
        for register in range(parts_of(rows)[0] * self.product.shape.vectors):
            self.product.writer.line(f"tw_tile_zero({register});")

    def store_sums(self, rows: int) -> None:
        """From registers to `c`, row by row."""
        panel, vectors = self.product.shape.panel, self.product.shape.vectors
        for at in range(parts_of(rows)[0]):
            for vector in range(vectors):
                place = f"c + {_first(rows, at) * panel + vector * COLUMNS}"
                self.product.writer.line(f"tw_tile_store({at * vectors + vector}, {place}, {panel * LANE_BYTES}L);")

    def fetch_ahead(self, k: str) -> None:
        """A share of the next panel, at step `k` of whole tiles of k."""
        if lines := self.lines_ahead:
            self.product.writer.line(f"if (ahead) tw_tile_ahead(ahead + {k} * {lines * LINE_BYTES}L, {lines});")

    def products(self, rows: int, k: str, a: int, b: int) -> None:
        """All products of one tile of k: by each tile of B all parts of A, back and forth, so that few are loaded."""
        product, writer, shape = self.product, self.product.writer, self.product.shape
        step, parts = product.row_step or product.row_bytes, parts_of(rows)[0]
        order, loaded = list(range(parts)), -1
        for vector in range(shape.vectors):
            place = f"b + {k} * {GROUPS * shape.panel * LANE_BYTES} + {vector * COLUMNS * LANE_BYTES}"
            writer.line(f"tw_tile_load({b}, {place}, {shape.panel * LANE_BYTES}L);")
            for at in order:
                if at != loaded:
                    place = f"a + {k} * {GROUPS * LANE_BYTES} + {_first(rows, at) * step}L"
                    writer.line(f"tw_tile_load({a}, {place}, {step}L);")
                    loaded = at
                writer.line(f"{self._dot}({at * shape.vectors + vector}, {a}, {b});")
            order.reverse()


def _first(rows: int, at: int) -> int:
    """The first row of a part."""
    part = parts_of(rows)[1]
    return min(at * part, rows - part)


class TileStep:
    """The `Step` of tiles whose rows are staged row by row, or read in place."""

    keeps_sums = False

    @staticmethod
    def _registers(product: DotContraction) -> Registers:
        shape = product.shape
        return Registers(product, min(shape.block_m, product.view.rows), f"(row0 - first_row) / {shape.rows}")

    def begin(self, product: DotContraction) -> None:
        """The registers get the shapes of whole register tiles."""
        self._registers(product).begin(product.shape.rows)

    def end(self, product: DotContraction) -> None:
        """The registers are given back."""
        product.writer.line("tw_tiles_end();")

    def multiply(self, product: DotContraction, rows: int) -> str:
        """With what is fetched meanwhile."""
        return self._registers(product).multiply(rows)

    def write(self, product: DotContraction, rows: int) -> None:
        """c[rows][panel] = a[rows][groups] b[groups][panel], by registers of the shapes that it declares."""
        writer, shape, registers = product.writer, product.shape, self._registers(product)
        parts, part = parts_of(rows)
        whole, rest = divmod(product.groups.groups, GROUPS)
        declare_shapes(writer, registers.shapes(rows), parts * shape.vectors, part, rest)
        head = f"void {product.name}_{rows}(const char *a, const char *b, {product.scalar_type} *c, const char *ahead)"
        with writer.block(f"static inline __attribute__((always_inline)) {head}"):
            if rows != shape.rows:
                registers.begin(rows)
            registers.clear_sums(rows)
            if whole:
                with writer.block(f"for (long k = 0; k < {whole}; k++)"):
                    registers.fetch_ahead("k")
                    registers.products(rows, "k", A, B)
            if rest:
                registers.products(rows, f"{whole}L", A_REST, B_REST)
            registers.store_sums(rows)
            if rows != shape.rows:
                registers.begin(shape.rows)
        writer.line()


def declare_shapes(writer: Writer, name: str, sums: int, rows: int, rest: int) -> None:
    """A table of registers' shapes: those for sums, for A and for B; `rest` groups are left beyond whole tiles of k."""
    octets = dict.fromkeys([*range(sums), A, B, B_REST], LINE_BYTES) | {A_REST: rest * LANE_BYTES}
    tall = dict.fromkeys([*range(sums), A, A_REST], rows) | {B: GROUPS, B_REST: rest}
    if not rest:
        octets, tall = ({at: size for at, size in one.items() if at not in (A_REST, B_REST)} for one in (octets, tall))
    lists = [", ".join(f"[{at}] = {size}" for at, size in sorted(one.items())) for one in (octets, tall)]
    writer.include("tw_tiles.h")
    writer.line(f"static const tw_tile_shapes {name} = {{1, .bytes = {{{lists[0]}}}, .rows = {{{lists[1]}}}}};")


def as_tiles(algorithm: str, product: DotProduct) -> TileProduct:
    """A product of dot products as one of tiles, of an algorithm."""
    return TileProduct(algorithm, product.view, product.group, product.steps_per_ns, product.staged, product.packed)
