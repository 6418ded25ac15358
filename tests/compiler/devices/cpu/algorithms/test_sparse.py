from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.sparse.plane import Plane
from compiler.devices.cpu.algorithms.sparse.tiles import sparse_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here, this_machine
from compiler.encodings.encoding import DENSE, Use
from compiler.encodings.sparse import Sparse
from compiler.encodings.zeros import GROUPS
from compiler.forms.sparse import Streams, as_sparse_product
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load, Where, conjunction, inside
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.packing import Steered
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, Library, draws

F32 = DType.F32


@dataclass(frozen=True)
class Sparsity:
    """Which weights are not zero: a share of them, drawn for `lines` neighbouring lines together."""

    share: float
    lines: int = 1

    def of(self, weights: np.ndarray, seed: int) -> np.ndarray:
        """Line by line of the first axis."""
        random = np.random.default_rng(seed)
        groups = -(-len(weights) // self.lines)
        mask = random.random((groups, *weights.shape[1:])) < self.share
        return np.where(np.repeat(mask, self.lines, 0)[: len(weights)], weights, np.float32(0))


@dataclass(frozen=True)
class Layer:
    """A convolution (of no axis: a matrix product) by sparse weights, with what precedes and follows it."""

    batch: int
    depth: int
    columns: int
    dims: tuple[int, ...]
    taps: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    sparsity: Sparsity
    before: str = ""
    after: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[int, ...]:
        axes = zip(self.dims, self.taps, self.pads, self.strides, self.dilations, strict=True)
        return tuple(
            (dim + 2 * pad - (taps - 1) * dilation - 1) // stride + 1 for dim, taps, pad, stride, dilation in axes
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "x": (self.batch, self.depth, *self.dims),
            "w": (self.columns, self.depth, *self.taps),
        }
        shapes |= {"scale": (self.depth,)} if self.before == "scale" else {}
        out = (self.batch, self.columns, *self.outputs)
        return shapes | {
            kind: (self.columns,) if kind == "bias" else out for kind in self.after if kind in ("bias", "residual")
        }

    def kernel(self) -> Kernel:
        n, k, c = (
            Axis(name, extent) for name, extent in zip("nkc", (self.batch, self.columns, self.depth), strict=True)
        )
        space = [Axis(f"o{at}", extent) for at, extent in enumerate(self.outputs)]
        taps = [Axis(f"r{at}", extent) for at, extent in enumerate(self.taps)]
        axes = zip(space, taps, self.pads, self.strides, self.dilations, strict=True)
        places = [Index.of(o) * stride + Index.of(r) * dilation - pad for o, r, pad, stride, dilation in axes]
        data: Expr = Load("x", (Index.of(n), Index.of(c), *places), F32)
        if self.before == "scale":
            data = Apply("max", (Apply("mul", (data, Load("scale", (Index.of(c),), F32))), Const(0.0, F32)))
        guards = [inside(place, extent) for place, extent in zip(places, self.dims, strict=True)]
        guard = conjunction([part for part in guards if part is not None])
        data = data if guard is None else Where(guard, data, Const(0.0, F32))
        product = Apply("mul", (data, Load("w", (Index.of(k), Index.of(c), *map(Index.of, taps)), F32)))
        index = (Index.of(n), Index.of(k), *map(Index.of, space))
        names = [*(f"t{at}" for at in range(len(self.after))), "y"]
        blocks = [Block((), (product,), (Store(names[0], index),), (c, *taps), "sum", F32)]
        for at, kind in enumerate(self.after):
            value: Expr = Load(names[at], index, F32)
            other: Expr = Const(0.0, F32)
            if kind != "relu":
                other = Load(kind, (Index.of(k),) if kind == "bias" else index, F32)
            value = Apply("max" if kind == "relu" else "add", (value, other))
            blocks.append(Block((), (value,), (Store(names[at + 1], index),)))
        out = TensorType(F32, (self.batch, self.columns, *self.outputs))
        inputs = tuple(Slot(name, TensorType(F32, dims)) for name, dims in self.shapes.items())
        temps = tuple(Slot(name, out) for name in names[:-1])
        return Kernel("Conv", inputs, (Slot("y", out),), tuple(blocks), temps, (n, k, *space))

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        arrays = {name: random.uniform(-1, 1, dims).astype(np.float32) for name, dims in self.shapes.items()}
        return {**arrays, "w": self.sparsity.of(arrays["w"], seed)}

    def reference(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """In float64, tap by tap; a zero weight is not multiplied."""
        wide = {name: array.astype(np.float64) for name, array in arrays.items()}
        x, w, rank = wide["x"], wide["w"], len(self.dims)
        if self.before == "scale":
            x = np.maximum(x * wide["scale"].reshape(1, -1, *[1] * rank), 0)
        x = np.pad(x, ((0, 0), (0, 0), *((pad, pad) for pad in self.pads)))
        y = np.zeros((self.batch, self.columns, *self.outputs))
        for place in np.argwhere(w):
            column, channel, *taps = place
            axes = zip(taps, self.strides, self.dilations, self.outputs, strict=True)
            part = tuple(slice(tap * far, tap * far + (many - 1) * step + 1, step) for tap, step, far, many in axes)
            y[:, column] += w[tuple(place)] * x[(slice(None), channel, *part)]
        for kind in self.after:
            extra = wide[kind].reshape(1, -1, *[1] * rank) if kind == "bias" else wide.get(kind, 0.0)
            y = np.maximum(y, 0) if kind == "relu" else y + extra
        return np.asarray(y)


@dataclass(frozen=True)
class SparseCase(Case):
    """With what is known of the zeros in its weights."""

    @property
    def workload(self) -> Workload:
        plain = super().workload
        known = {1: Sparse.find(self.inputs[1], Use.PRODUCT)}
        return replace(plain, encodings=tuple((DENSE, *known.get(at, ())) for at in range(len(self.inputs))))


def case_of(one: Layer, tile: Tile, *, room: int = 0, seed: int = 0, cuts: tuple[float, ...] = ()) -> SparseCase:
    """Channels lie last, with room for others beside them, as a Concat's operand has it."""
    kernel = one.kernel()
    buffers = []
    for at, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        type = slot.type
        whole = Buffer.whole(at, type)
        if slot.name != "w" and type.rank > 1:
            whole = Buffer.whole(at, type, Layout.channels_last(type.rank))
            wide = TensorType(F32, (type.dims[0], type.dims[1] + room, *type.dims[2:]))
            whole = replace(whole, strides=Buffer.whole(at, wide, whole.layout).strides, offset=min(room, 5))
        buffers.append(whole)
    constant = tuple(at for at, slot in enumerate(kernel.inputs) if slot.name in ("w", "bias", "scale"))
    return SparseCase(kernel, tuple(buffers), tuple(one.arrays(seed).values()), tile, constant, cuts)


def tile_of(rows: int, images: int, segment: int, positions: int, group: int) -> Tile:
    levels = (
        Level("block", (("m", rows), ("b", images), ("k", segment))),
        Level("register", (("m", positions), ("n", group))),
    )
    return Tile("sparse", levels)


TAPS: dict[int, list[tuple[int, ...]]] = {
    0: [()],
    1: [(3,), (7,), (2,), (1,)],
    2: [(3, 3), (5, 3), (3, 3), (1, 3), (3, 1), (1, 1), (2, 2)],
}
"""Of layers that sweep none to two axes."""


@st.composite
def layers(draw: st.DrawFn, swept: int) -> Layer:
    """With strides, dilations, paddings and tails of everything."""
    taps = draw(st.sampled_from(TAPS[swept]))
    strides = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in taps)
    dilations = tuple(draw(st.sampled_from([1, 1, 1, 2])) for _ in taps)
    pads = tuple(draw(st.integers(0, 2)) if many > 1 else 0 for many in taps)
    reaches = [(many - 1) * far for many, far in zip(taps, dilations, strict=True)]
    dims = tuple(draw(st.integers(max(reach - 2 * pad, 0) + 1, 19)) for reach, pad in zip(reaches, pads, strict=True))
    return Layer(
        draw(st.sampled_from([1, 2, 5])) if taps else draw(st.sampled_from([8, 17, 40])),
        draw(st.sampled_from([17, 32, 40, 70] if prod(taps) > 1 else [44, 70])),
        draw(st.sampled_from([16, 17, 24, 61] if prod(taps) > 1 else [24, 61])),
        dims,
        taps,
        pads,
        strides,
        dilations,
        Sparsity(draw(st.sampled_from([0.01, 0.1, 0.3])), draw(st.sampled_from([1, 1, 2, 4, 8]))),
        draw(st.sampled_from(["", "", "", "scale"])),
        tuple(draw(st.lists(st.sampled_from(["bias", "residual", "relu"]), max_size=3, unique=True))),
    )


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget, swept: int) -> tuple[Layer, SparseCase]:
    """A layer under a tile of the tile stage or an odd one, its tasks split over several calls."""
    one = draw(layers(swept))
    room, seed = draw(st.sampled_from([0, 0, 8, 13])), draw(st.integers(0, 2**16))
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    case = case_of(one, Tile("loops"), room=room, seed=seed, cuts=cuts)
    view = as_sparse_product(case.workload)
    if view is None:  # too few elements, or a single output along an axis leaves nothing to sweep
        return one, case
    options = sparse_tiles(case.workload, target, draw(st.integers(1, 2)))
    odd = tile_of(
        draw(st.integers(1, 5)) if view.sweeps else draw(st.integers(1, 40)),
        draw(st.integers(1, 3)) if view.sweeps and view.free else 1,
        draw(st.integers(1, 40)),
        draw(st.integers(1, 3)) * target.vector_floats,
        draw(st.sampled_from(GROUPS)),
    )
    legal = Plane.of(view, odd, target.vector_floats).is_legal
    if (not options or draw(st.booleans())) and legal:
        return one, replace(case, tile=odd)
    return one, replace(case, tile=draw(st.sampled_from(options)).tile) if options else case


def judge(pairs: Sequence[tuple[Layer, SparseCase]], target: CpuTarget) -> None:
    """Compiles all cases into one library and compares each with the reference."""
    library = Library.of([case for _, case in pairs], target, "-O1")
    for number, (one, case) in enumerate(pairs):
        (got,) = library.run(number, case)
        names = [slot.name for slot in case.kernel.inputs]
        arrays = dict(zip(names, case.inputs, strict=True))
        sums = one.reference({name: np.abs(array) for name, array in arrays.items()})
        text = f"{one}\n{case.tile}\n{library.lowered[number].text}"
        bound = 2e-6 * max(float(sums.max()), 1e-30)
        np.testing.assert_allclose(got, one.reference(arrays), rtol=0, atol=bound, err_msg=text)


def drawn(target: CpuTarget, count: int) -> list[tuple[Layer, SparseCase]]:
    """So many of each number of swept axes, but for those that are no sparse products."""
    each = [pair for swept in TAPS for pair in draws(cases(target, swept), count)]
    return [(one, case) for one, case in each if case.tile.algorithm == "sparse"]


def test_layers_under_any_tile_split_anywhere_mean_what_they_say() -> None:
    target = this_machine()
    pairs = drawn(target, 18)
    assert len(pairs) > 30
    assert len({len(one.taps) for one, _ in pairs}) == 3
    assert {case.tile.extent("register", "n") for _, case in pairs} == {*GROUPS}
    judge(pairs, target)


WIDTHS = {profile.vector_floats: profile for profile in PROFILES if runs_here(profile)}


@pytest.mark.parametrize("lanes", [lanes for lanes in WIDTHS if lanes != this_machine().vector_floats])
def test_layers_are_right_at_every_width_of_vectors(lanes: int) -> None:
    target = resolve(WIDTHS[lanes].name)
    pairs = drawn(target, 4)
    assert pairs
    judge(pairs, target)


SMALL = Layer(1, 32, 16, (9, 20), (3, 3), (1, 1), (1, 1), (1, 1), Sparsity(0.1), "", ("bias",))


def run_on(each: list[dict[str, np.ndarray]], group: int = 1) -> list[np.ndarray]:
    """SMALL on several inputs, each with weights of its own."""
    tile = tile_of(2, 1, 16, 2 * this_machine().vector_floats, group)
    found = [replace(case_of(SMALL, tile), inputs=tuple(one.values())) for one in each]
    library = Library.of(found, this_machine(), "-O1")
    return [library.run(number, case)[0] for number, case in enumerate(found)]


def test_no_weight_one_weight_and_weights_that_are_not_finite_are_kept_as_they_are() -> None:
    arrays = SMALL.arrays(3)
    nothing, one, odd = (np.zeros_like(arrays["w"]) for _ in range(3))
    one[5, 7, 2, 0] = 3.0
    odd[2, 30, 1, 1], odd[3, 0, 1, 1], odd[4, 4, 0, 0] = np.nan, np.inf, -0.0
    got_nothing, got_one, got_odd = run_on([{**arrays, "w": w} for w in (nothing, one, odd)], 4)
    bias = np.broadcast_to(arrays["bias"].reshape(1, -1, 1, 1), got_nothing.shape)
    np.testing.assert_array_equal(got_nothing, bias)
    np.testing.assert_allclose(got_one, SMALL.reference({**arrays, "w": one}), rtol=1e-6, atol=1e-6)
    assert np.isnan(got_odd[:, 2]).all()
    assert not np.isfinite(got_odd[:, 3]).any()
    np.testing.assert_array_equal(got_odd[:, 4:], bias[:, 4:])


def test_a_nan_and_an_infinity_reach_what_weights_link_them_to_and_nothing_else() -> None:
    arrays = SMALL.arrays(4)
    (clean,) = run_on([arrays])
    arrays["x"][0, 3, 4, 6] = np.nan
    arrays["x"][0, 9, 4, 15] = np.inf
    (got,) = run_on([arrays])
    with np.errstate(invalid="ignore"):
        want = SMALL.reference(arrays)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    untouched = np.isfinite(want)
    assert 0 < (~untouched).sum() < 60
    np.testing.assert_array_equal(got[untouched], clean[untouched])


def test_dense_weights_and_unknown_ones_have_no_sparse_tiles() -> None:
    dense = replace(SMALL, sparsity=Sparsity(0.6))
    assert sparse_tiles(case_of(dense, Tile("loops")).workload, this_machine(), 1) == []
    sparse = case_of(SMALL, Tile("loops")).workload
    assert sparse_tiles(sparse, this_machine(), 1)
    assert sparse_tiles(replace(sparse, encodings=()), this_machine(), 1) == []


def streams_of(layer: Layer, group: int) -> tuple[Streams, np.ndarray]:
    case = case_of(layer, tile_of(2, 1, 16, 16, group))
    view = as_sparse_product(case.workload)
    assert view is not None
    return Plane.of(view, case.tile, 16).streams(case.workload)[1], case.inputs[1]


@pytest.mark.parametrize("group", GROUPS)
def test_packed_weights_are_all_that_are_not_zero_each_at_its_distance(group: int) -> None:
    streams, weights = streams_of(replace(SMALL, sparsity=Sparsity(0.15, 2)), group)
    packed = streams.pack(weights)
    assert len(packed) == streams.elements
    first, order, values, distances, _ = streams.parts
    starts = packed[first : first + 4 * (streams.segments * streams.groups + 1)].view("<i4")
    where = packed[order : order + 4 * len(weights)].view("<i4")
    kept = packed[values : values + 4 * streams.kept * group].view("<f4").reshape(-1, group)
    places = packed[distances : distances + 2 * streams.kept].view("<u2")
    found = np.zeros_like(weights)
    for line, at in enumerate(where):
        for segment in range(streams.segments):
            run = segment * streams.groups + at // group
            for place in range(starts[run], starts[run + 1]):
                channel, tap = np.argwhere(streams.distances == places[place])[0]
                found[line, segment * streams.segment + channel, tap // 3, tap % 3] = kept[place, at % group]
    np.testing.assert_array_equal(found, weights)


def test_a_specimen_is_as_long_as_what_is_packed_and_leads_nowhere_else() -> None:
    streams, weights = streams_of(SMALL, 2)
    assert isinstance(streams, Steered)
    specimen, packed = streams.specimen(), streams.pack(weights)
    assert specimen.shape == packed.shape
    *_, distances, _ = streams.parts
    assert specimen[distances : distances + 2 * streams.kept].view("<u2").max() <= streams.distances.max()
    starts = specimen[: 4 * (streams.segments * streams.groups + 1)].view("<i4")
    assert starts[0] == 0
    assert starts[-1] == streams.kept
    assert (np.diff(starts) >= 0).all()


def test_encodings_say_what_groups_of_lines_keep() -> None:
    vectors = Sparsity(0.1, 4).of(np.ones((64, 512), np.float32), 1)
    lines, columns = Sparse.find(vectors, Use.PRODUCT)
    assert isinstance(lines, Sparse)
    assert isinstance(columns, Sparse)
    assert lines.fill(1) == lines.fill(4) == 7
    assert lines.fill(8) > 10
    assert columns.fill(4) > 10
    scattered = vectors[np.random.default_rng(2).permutation(64)]
    (again, _) = Sparse.find(scattered, Use.PRODUCT)
    assert isinstance(again, Sparse)
    assert again.fill(4) == 7, "lines with the same zeros are brought together"
    assert Sparse.find(np.ones((64, 64), np.float32), Use.PRODUCT) == ()
    assert Sparse.find(vectors.astype(np.float64), Use.PRODUCT) == ()
    assert Sparse.read(lines.word) == lines
    with pytest.raises(ValueError, match="is no sparse encoding"):
        Sparse.read("sparse_2_1_1_1_1")
