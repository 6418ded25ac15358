"""The `attention` algorithms of CUDA: softmax(map(Q K^T)) V on tensor cores, without the scores ever leaving registers.

A block of threads takes some queries of one head; its warps share out the queries, 16 each, and the keys. Q stays in
fragments. Keys and values come by asynchronous copies, a block of keys at a time and `stages` of them ahead, into
shared memory. Each warp keeps the largest score so far, the sum of the exponentials and the sums of values, of its own
queries and keys (the online softmax: Milakov and Gimelshein, arXiv 1805.02867; Dao, FlashAttention-2, arXiv
2307.08691). What the warps of the same queries have found is joined in shared memory, always in the same order, and
divided by the whole sum.

    attention          operands that lie in 16 bits; the weights are rounded to the same dtype, all sums are fp32
    attention_tf32     fp32 operands rounded to tf32
    attention_3xtf32   fp32 operands as sums of two tf32 numbers, of whose four products the least is left out; infinite
                       ones give NaN

A lane's scores are its part of the next product's operand as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.attention.geometry import (
    MOST_SPLIT_DEPTH,
    ROWS,
    FlashAttention,
    FlashBlocks,
    as_flash_attention,
    chunk_of,
    elements_at_once,
)
from compiler.devices.cuda.algorithms.attention.operands import Products, StagedOperand
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert, literal
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import axes_of
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load, Position
from compiler.ir.index import Axis
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

SPLIT = "attention_3xtf32"
LOG2_E = "1.44269504f"


def lower_cuda_attention(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A workload that `as_flash_attention` accepts, under a tile of FlashBlocks."""
    form = as_flash_attention(workload)
    assert form is not None, "the tile stage offers `attention` only to kernels of that form"
    blocks = FlashBlocks.of(tile).within(form.view.keys.extent)
    products = Products(form, blocks, Slots(workload), tile.algorithm == SPLIT)
    return _Attention(name, workload, form, products).lower()


@dataclass
class _Attention:
    name: str
    workload: Workload
    form: FlashAttention
    products: Products
    writer: Writer = field(default_factory=Writer)
    row_names: dict[Axis, str] = field(default_factory=dict)
    """How the axes of queries are called where `half` says which of the lane's two rows is meant."""
    vectors: dict[Load, str] = field(default_factory=dict)
    """Results that are stored several at once: the vector that takes element `at`."""

    def __post_init__(self) -> None:
        form, products = self.form, self.products
        self.view, self.blocks, self.slots = form.view, products.blocks, products.slots
        self.query_blocks = -(-self.view.queries // self.blocks.queries)
        self.keys = StagedOperand("keys", products, form.k, self.view.depth, form.k.inner == "sum")
        self.values = StagedOperand("values", products, form.v, (self.view.columns,), form.v.inner == "result")

    def lower(self) -> CudaLowered:
        view, blocks, products = self.view, self.blocks, self.products
        self._declare()
        self._first_copies()
        self._queries()
        self._state()
        if products.key_blocks == 1:
            self._key_block()
        else:
            with self.writer.block(f"for (int block = 0; block < {products.key_blocks}; block++)"):
                self._key_block()
                self._next_copies()
        self._put_sums()
        self._results()
        kind = str(self.form.dtype) if products.is_short else "3xTF32" if products.split else "tf32"
        return framed(
            self.name,
            self.workload,
            self.writer.lines,
            Frame(
                grid=view.batches * self.query_blocks, block=blocks.threads, shared_bytes=blocks.shared_bytes(self.form)
            ),
            notes=(
                f"heads {axes_of(view.batch)}; queries {axes_of(view.rows)}; keys {axes_of((view.keys,))};",
                f"depth {axes_of(view.depth)}; columns {axes_of((view.columns,))}; products in {kind}",
            ),
        )

    def _declare(self) -> None:
        """Which head and queries are the block's, which of them and of a block of keys the warp's."""
        line, blocks, private = self.writer.line, self.blocks, self.products.is_private
        line("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;")
        line(
            f"const int head = tile / {self.query_blocks}, first_query = tile % {self.query_blocks} * {blocks.queries};"
        )
        decode(self.writer, self.view.batch, "head", "int")
        line(f"const int own_keys = warp{'' if private else f' / {blocks.query_warps}'} * {blocks.warp_keys};")
        line(f"const int own_queries = {0 if private else f'warp % {blocks.query_warps} * {ROWS}'};")
        ctype = self.products.ctype
        line(f"{ctype} *const keys = ({ctype} *)shared; /* {self.keys.layout} */")
        begin = blocks.stages * self.keys.elements
        line(f"{ctype} *const values = keys + {begin}; /* {self.values.layout} */")
        if self.view.batches == 1:
            line("(void)head;")

    # Copies

    def _first_copies(self) -> None:
        writer, stages = self.writer, self.blocks.stages
        for operand in (self.keys, self.values):
            operand.write_fetch(writer)
        with writer.block(f"for (int early = 0; early < {stages}; early++)" if stages > 1 else ""):
            for operand in (self.keys, self.values):
                writer.line(f"fetch_{operand.name}({'early' if stages > 1 else '0'});")
                writer.line("tw_cp_async_commit();")

    def _next_copies(self) -> None:
        """What will lie where this block of keys does. Groups are counted: after the last one follow empty ones."""
        writer, stages = self.writer, self.blocks.stages
        if stages < self.products.key_blocks:
            self._barrier()
        for operand in (self.keys, self.values):
            if stages < self.products.key_blocks:
                fetch = f"fetch_{operand.name}(block + {stages});"
                writer.line(f"if (block + {stages} < {self.products.key_blocks}) {fetch}")
            writer.line("tw_cp_async_commit();")

    def _barrier(self) -> None:
        self.writer.line("__syncwarp();" if self.products.is_private else "__syncthreads();")

    # Queries

    def _used_axes(self, values: Iterable[Expr]) -> set[Axis]:
        """The axes that expressions depend on otherwise than through what is held in registers."""
        found: set[Axis] = set()
        for value in values:
            for part in value.walk():
                if isinstance(part, Position) or (isinstance(part, Load) and part.slot in self.slots.buffers):
                    found |= part.axes
        return found

    def _queries(self) -> None:
        """Q of the warp's 16 rows; beyond the last query, again the last.

        This lane has row g (half 0) and row g + 8 (half 1).
        """
        view, writer, form = self.view, self.writer, self.form
        used = self._used_axes([form.q.value, *(value for block in view.maps for value in block.values)])
        rows = [axis for axis in view.rows if axis in used]
        self.row_names = {axis: f"own_{axis}[half]" for axis in rows}
        if rows:
            writer.line(f"int {', '.join(f'own_{axis}[2]' for axis in rows)};")
            with unrolled(writer, 2, "half"):
                writer.line(f"const int query = min(first_query + own_queries + g + 8 * half, {view.queries - 1});")
                for axis, place in _places(view.rows, "query").items():
                    if axis in rows:
                        writer.line(f"own_{axis}[half] = {place};")
        fragments = form.depth // form.step
        writer.line(f"{'unsigned' if self.products.is_short else 'float'} q[{fragments}][4];")
        with unrolled(writer, fragments, "k"), unrolled(writer, 2, "half"):
            if self.products.is_short:
                with unrolled(writer, 2, "upper"):
                    writer.line("const int column = k * 16 + upper * 8 + 2 * t;")
                    self._query_pair("q[k][2 * upper + half]")
            else:
                with unrolled(writer, 2, "odd"):
                    writer.line("const int column = k * 8 + 2 * t + odd;")
                    writer.line("q[k][2 * odd + half] = 0;")
                    self._query("column", "q[k][2 * odd + half]")

    def _query_pair(self, into: str) -> None:
        """Two neighbouring 16-bit elements of a query in one register, zeros beyond the last."""
        view, load, writer = self.view, self.form.q.load, self.writer
        if len(view.depth) == 1 and view.deep % 2 == 0:
            (depth,) = view.depth
            if chunk_of(load, depth, self.form.dtype, self.slots):
                pointer, offset = self.slots.address(load.slot, load.index)
                place = self.products.emitter(writer, {**self.row_names, depth: "column"}).index(offset)
                pair = f"*(const unsigned *)({pointer} + {place})"
                writer.line(
                    f"{into} = {pair if view.deep == self.form.depth else f'column < {view.deep} ? {pair} : 0'};"
                )
                return
        writer.line(f"{self.products.ctype} low = {{}}, high = {{}};")
        self._query("column", "low")
        self._query("column + 1", "high")
        writer.line(f"{into} = low.bits | (unsigned)high.bits << 16;")

    def _query(self, column: str, into: str) -> None:
        """One element of a query, where there is one."""
        view, writer = self.view, self.writer
        with writer.block(f"if ({column} < {view.deep})" if view.deep != self.form.depth else ""):
            names = dict(self.row_names)
            if len(view.depth) == 1:
                names[view.depth[0]] = f"({column})"
            else:
                decode(writer, view.depth, f"({column})", "int")
            writer.line(f"{into} = {self.products.element(self.form.q.value, self.products.emitter(writer, names))};")

    # One block of keys

    def _state(self) -> None:
        """Declares what is kept of rows g and g + 8.

        The largest score so far, this lane's part of the sum of exponentials, the sums of values.
        """
        self.writer.line(f"float sums[{self.form.columns // 8}][4] = {{}};")
        self.writer.line("float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};")

    def _key_block(self) -> None:
        stages = self.blocks.stages
        self.writer.line(f"tw_cp_async_wait<{2 * stages - 1}>();")
        self._barrier()
        self._scores()
        self._score_maps()
        self._exponentials()
        self.writer.line(f"tw_cp_async_wait<{2 * stages - 2}>();")
        self._barrier()
        self._mix()

    def _scores(self) -> None:
        """scores = Q K^T of the warp's queries and keys."""
        form, products, writer = self.form, self.products, self.writer
        writer.line(f"const {products.ctype} *const keys_now = {self.keys.at_stage('block')};")
        writer.line(f"float scores[{self.blocks.warp_keys // 8}][4] = {{}};")
        with unrolled(writer, form.depth // form.step, "k"):
            if not products.is_short:
                is_long = products.split and form.depth > MOST_SPLIT_DEPTH
                products.round(writer, "a", 4, "tw_anew(q[k][at])" if is_long else "q[k][at]")
            with unrolled(writer, self.blocks.warp_keys // products.width, "n"):
                a, across = "q[k]" if products.is_short else "a", f"own_keys + n * {products.width}"
                self.keys.write_multiply(writer, "scores", a, f"k * {form.step}", across)

    def _score_maps(self) -> None:
        """What follows the product on each score; keys beyond the last have the score -infinity."""
        view, writer, keys = self.view, self.writer, self.blocks.keys
        all_there = self.products.key_blocks * keys == view.keys.extent
        factor = self.form.q.factor * self.form.k.factor
        if not view.maps and all_there and factor == 1:
            return
        used = self._used_axes(value for block in view.maps for value in block.values)
        with unrolled(writer, self.blocks.warp_keys // 8, "n"), unrolled(writer, 4, "e"):
            emitter = self.products.emitter(writer, {**self.row_names, view.keys: "key"})
            if used & {*view.rows}:
                writer.line("const int half = e / 2;")
            if view.keys in used or not all_there:
                block = f"block * {keys} + " if self.products.key_blocks > 1 else ""
                writer.line(f"const int key = {block}own_keys + n * 8 + 2 * t + e % 2;")
            if view.keys in used and not all_there:
                writer.line(f"const int key_there = min(key, {view.keys.extent - 1});")
                emitter.names[view.keys] = "key_there"
            score = "scores[n][e]" if factor == 1 else f"scores[n][e] * {literal(factor, DType.F32)}"
            score = self._mapped(emitter, view.scores, view.maps, score)
            writer.line(f"scores[n][e] = {score if all_there else f'key < {view.keys.extent} ? {score} : -INFINITY'};")

    def _exponentials(self) -> None:
        """scores = exp(scores - largest), added to the row's total.

        What came of earlier keys is scaled to the new largest score. A row without any score above -infinity keeps a
        total of 0, so that later keys, if there are any, decide.
        """
        writer, is_first = self.writer, self.products.key_blocks == 1
        fragments = self.blocks.warp_keys // 8
        with unrolled(writer, 2, "half"):
            writer.line("float most = largest[half];")
            with unrolled(writer, fragments, "n"):
                writer.line("most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));")
            with unrolled(writer, 2, "step"):
                writer.line("most = fmaxf(most, tw_of_lane(most, 1 << step));")
            writer.line("const float from = most == -INFINITY ? 0 : most;")
            if not is_first:
                writer.line(f"const float scale = {self._exp('largest[half] - from')};")
                writer.line("total[half] *= scale;")
                with unrolled(writer, self.form.columns // 8, "n"):
                    writer.line("sums[n][2 * half] *= scale, sums[n][2 * half + 1] *= scale;")
            writer.line("largest[half] = most;")
            with unrolled(writer, fragments, "n"), unrolled(writer, 2, "odd"):
                writer.line("float &score = scores[n][2 * half + odd];")
                writer.line(f"score = {self._exp('score - from')};")
                writer.line("total[half] += score;")

    def _exp(self, arg: str) -> str:
        """exp, to the last bit but one where products are fp32.

        Elsewhere by the instruction, of what is multiplied with log2(e).
        """
        return f"expf({arg})" if self.products.split else f"tw_exp2_approx(({arg}) * {LOG2_E})"

    def _mix(self) -> None:
        """sums += weights V; a lane's weights are those of keys 2t and 2t + 1 of each fragment.

        Tensor cores cut off what they add to a sum, so that it drifts with the number of keys (`SplitProduct`). Where
        fp32 is meant theirs begins anew with each block of keys, for some columns at a time: registers are scarce.
        """
        form, products, writer = self.form, self.products, self.writer
        writer.line(f"const {products.ctype} *const values_now = {self.values.at_stage('block')};")
        fragments = form.columns // products.width
        if not products.split:
            self._mix_columns("sums", fragments, "n")
            return
        at_once = 4 if fragments % 4 == 0 else 2
        with unrolled(writer, fragments // at_once, "group"):
            writer.line(f"float block_sums[{at_once}][4] = {{}};")
            self._mix_columns("block_sums", at_once, f"(group * {at_once} + n)")
            with unrolled(writer, at_once, "n"), unrolled(writer, 4, "e"):
                writer.line(f"sums[group * {at_once} + n][e] += block_sums[n][e];")

    def _mix_columns(self, into: str, fragments: int, at: str) -> None:
        """into[n] += weights V for so many fragments of columns, of which `at` is the n-th."""
        form, products, writer = self.form, self.products, self.writer
        with unrolled(writer, self.blocks.warp_keys // form.step, "k"):
            if products.is_short:
                writer.line("unsigned weights[4];")
                with unrolled(writer, 4, "at"):
                    writer.line("const float *const pair = scores[2 * k + at / 2] + at % 2 * 2;")
                    writer.line(f"weights[at] = tw_pack_{form.dtype}(pair[0], pair[1]);")
            else:
                writer.line("const float weights[4] = {scores[k][0], scores[k][2], scores[k][1], scores[k][3]};")
                products.round(writer, "a", 4, "weights[at]")
            with unrolled(writer, fragments, "n"):
                a, along = "weights" if products.is_short else "a", f"own_keys + k * {form.step}"
                self.values.write_multiply(writer, into, a, along, f"{at} * {products.width}")

    # Results

    def _put_sums(self) -> None:
        """What each warp has found, to shared memory.

        mixed[part of the keys][query][column], and largest and total of each query.
        """
        blocks, writer, pitch = self.blocks, self.writer, self.form.mixed_pitch
        rows = blocks.key_warps * blocks.queries
        writer.line("__syncthreads(); /* keys and values give way */")
        writer.line("float *const mixed = (float *)shared;")
        writer.line(f"float *const largest_of = mixed + {rows * pitch}, *const total_of = largest_of + {rows};")
        with unrolled(writer, 2, "half"):
            with unrolled(writer, 2, "step"):
                writer.line("total[half] += tw_of_lane(total[half], 1 << step);")
            part = f"own_keys / {blocks.warp_keys} * {blocks.queries} + " if blocks.key_warps > 1 else ""
            writer.line(f"const int row = {part}own_queries + g + 8 * half;")
            with unrolled(writer, self.form.columns // 8, "n"):
                pair = "make_float2(sums[n][2 * half], sums[n][2 * half + 1])"
                writer.line(f"*(float2 *)(mixed + row * {pitch} + n * 8 + 2 * t) = {pair};")
            with writer.block("if (t == 0)"):
                writer.line("largest_of[row] = largest[half];")
                writer.line("total_of[row] = total[half];")
        writer.line("__syncthreads();")

    def _results(self) -> None:
        """Each thread takes neighbouring columns of a query.

        It joins the warps' sums, divides by the total, and stores.
        """
        view, blocks, writer = self.view, self.blocks, self.writer
        block = (view.mixed, *view.epilogue)[-1]
        last = block.stores[-1]
        place = Load(last.slot, last.index, block.values[-1].dtype)
        count = elements_at_once(place, view.columns, self.slots)
        per_row = view.columns.extent // count
        work = blocks.queries * per_row
        loop = f"for (int item = threadIdx.x; item < {work}; item += {blocks.threads})"
        with writer.block(loop):
            writer.line(f"const int row = item / {per_row}, query = first_query + row;")
            writer.line(f"const int first_column = item % {per_row}{f' * {count}' if count > 1 else ''};")
            if view.queries % blocks.queries:
                writer.line(f"if (query >= {view.queries}) continue;")
            decode(writer, view.rows, "query", "int")
            self._joined_total()
            self._joined_sums(count)
            if count == 1:
                writer.line("const int column = first_column, at = 0;")
                self._result()
                return
            kind = f"tw_vector<{CUDA_TYPES[self.slots.buffers[place.slot].dtype]}, {count}>"
            self.vectors = {place: "results"}
            writer.line(f"{kind} results;")
            with unrolled(writer, count, "at"):
                if self._names_columns(place):
                    writer.line("const int column = first_column + at;")
                self._result()
            pointer, offset = self.slots.address(place.slot, place.index)
            at = self.products.emitter(writer, {view.columns: "first_column"}).index(offset)
            writer.line(f"*({kind} *)({pointer} + {at}) = results;")

    def _names_columns(self, whole: Load) -> bool:
        """Whether maps or stores beside `whole`, which is stored by vectors, mention the column."""
        blocks = (self.view.mixed, *self.view.epilogue)
        stores = [store for block in blocks for store in block.stores if store.slot in self.slots.buffers]
        used = self._used_axes(value for block in self.view.epilogue for value in block.values)
        return self.view.columns in used or any(
            (store.slot, store.index) != (whole.slot, whole.index) for store in stores
        )

    def _joined_total(self) -> None:
        """`whole` = the inverse of the row's total; `share` = what each warp's sums count for it."""
        blocks, writer = self.blocks, self.writer
        if blocks.key_warps == 1:
            writer.line("const float whole = 1 / total_of[row];")
            return
        writer.line(f"float most = largest_of[row], total_of_all = 0, share[{blocks.key_warps}];")
        with unrolled(writer, blocks.key_warps, "part"):
            writer.line(f"most = fmaxf(most, largest_of[part * {blocks.queries} + row]);")
        writer.line("const float from = most == -INFINITY ? 0 : most;")
        with unrolled(writer, blocks.key_warps, "part"):
            writer.line(f"share[part] = {self._exp(f'largest_of[part * {blocks.queries} + row] - from')};")
            writer.line(f"total_of_all += total_of[part * {blocks.queries} + row] * share[part];")
        writer.line("const float whole = 1 / total_of_all;")

    def _joined_sums(self, count: int) -> None:
        """sum[count] = the warps' sums of neighbouring columns, each as much as it counts."""
        blocks, writer, pitch = self.blocks, self.writer, self.form.mixed_pitch
        width = min(count, 4)
        share = " * share[part]" if blocks.key_warps > 1 else ""
        row = f"(part * {blocks.queries} + row)" if share else "row"
        writer.line(f"float sum[{count}] = {{}};")
        with ExitStack() as stack:
            if share:
                stack.enter_context(unrolled(writer, blocks.key_warps, "part"))
            writer.line("#pragma unroll")
            stack.enter_context(
                writer.block(f"for (int from_column = 0; from_column < {count}; from_column += {width})")
            )
            kind = f"tw_vector<float, {width}>"
            writer.line(
                f"const {kind} found = *(const {kind} *)(mixed + {row} * {pitch} + first_column + from_column);"
            )
            stack.enter_context(unrolled(writer, width, "at"))
            writer.line(f"sum[from_column + at] += found.element[at]{share};")

    def _result(self) -> None:
        """Element `at`: its sum by the total, the factor of the values, what follows."""
        view, factor = self.view, self.form.v.factor
        value = "sum[at] * whole" if factor == 1 else f"sum[at] * whole * {literal(factor, DType.F32)}"
        self._mapped(self.products.emitter(self.writer, {view.columns: "column"}), view.mixed, view.epilogue, value)

    def _mapped(self, emitter: CudaEmitter, product: Block, maps: Iterable[Block], value: str) -> str:
        """A product's result and what follows it, each put where its block stores it.

        That is a register, and memory where it is an output.
        """
        name = self.writer.name("v")
        self.writer.line(f"const float {name} = {value};")
        self._put(emitter, Load(product.stores[0].slot, product.stores[0].index, DType.F32), name)
        for block in maps:
            for store, expr in zip(block.stores, block.values, strict=True):
                name = emitter.scalar(expr)
                self._put(emitter, Load(store.slot, store.index, expr.dtype), name)
        return name

    def _put(self, emitter: CudaEmitter, place: Load, value: str) -> None:
        if place in self.vectors:
            element = convert(value, place.dtype, self.slots.buffers[place.slot].dtype)
            self.writer.line(f"{self.vectors[place]}.element[at] = {element};")
        elif place.slot in self.slots.buffers:
            emitter.store(place.slot, place.index, value, place.dtype)
        emitter.held[place] = value


def _places(axes: Sequence[Axis], flat: str) -> dict[Axis, str]:
    """Each axis of a row-major position."""
    places, stride = {}, 1
    for axis in reversed(axes):
        place = flat if stride == 1 else f"{flat} / {stride}"
        places[axis] = place if axis is axes[0] else f"{place} % {axis.extent}"
        stride *= axis.extent
    return places
