from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.algorithms.winograd import winograd_tiles
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here, this_machine
from compiler.forms.winograd import as_convolution, form, relative_error, sums_channels
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load, Where, conjunction, inside
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, Library, draws, loaded

F32 = DType.F32
MOST_ERROR = 2e-4
"""Forms that are less exact than that on a few channels are not judged."""


@dataclass(frozen=True)
class Filter:
    """A convolution of unit stride: `taps` and `pads` by axis, `ends` the padding after.

    What precedes and follows it.
    """

    batch: int
    groups: int
    depth: int
    columns: int
    dims: tuple[int, ...]
    taps: tuple[int, ...]
    pads: tuple[int, ...]
    ends: tuple[int, ...]
    before: str = ""
    after: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[int, ...]:
        sizes = zip(self.dims, self.taps, self.pads, self.ends, strict=True)
        return tuple(dim + pad + end - taps + 1 for dim, taps, pad, end in sizes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        channels, out = self.groups * self.columns, (self.batch, self.groups * self.columns, *self.outputs)
        shapes = {"x": (self.batch, self.groups * self.depth, *self.dims), "w": (channels, self.depth, *self.taps)}
        shapes |= {"scale": (self.groups * self.depth,)} if self.before == "scale" else {}
        return shapes | {
            kind: (channels,) if kind == "bias" else out for kind in self.after if kind in ("bias", "residual")
        }

    def kernel(self) -> Kernel:
        n, g, k, c = (
            Axis(name, extent)
            for name, extent in zip("ngkc", (self.batch, self.groups, self.columns, self.depth), strict=True)
        )
        space = [Axis(f"o{at}", extent) for at, extent in enumerate(self.outputs)]
        taps = [Axis(f"r{at}", extent) for at, extent in enumerate(self.taps)]
        places = [Index.of(o) + r - pad for o, r, pad in zip(space, taps, self.pads, strict=True)]
        channel, source = Index.of(g) * self.columns + k, Index.of(g) * self.depth + c
        data: Expr = Load("x", (Index.of(n), source, *places), F32)
        if self.before == "scale":
            data = Apply("max", (Apply("mul", (data, Load("scale", (source,), F32))), Const(0.0, F32)))
        guards = [inside(place, extent) for place, extent in zip(places, self.dims, strict=True)]
        guard = conjunction([part for part in guards if part is not None])
        data = data if guard is None else Where(guard, data, Const(0.0, F32))
        product = Apply("mul", (data, Load("w", (channel, Index.of(c), *map(Index.of, taps)), F32)))
        index = (Index.of(n), channel, *map(Index.of, space))
        names = [*(f"t{at}" for at in range(len(self.after))), "y"]
        blocks = [Block((), (product,), (Store(names[0], index),), (c, *taps), "sum", F32)]
        for at, kind in enumerate(self.after):
            value: Expr = Load(names[at], index, F32)
            other: Expr = Const(0.0, F32)
            if kind != "relu":
                other = Load(kind, (channel,) if kind == "bias" else index, F32)
            value = Apply("max" if kind == "relu" else "add", (value, other))
            blocks.append(Block((), (value,), (Store(names[at + 1], index),)))
        out = TensorType(F32, (self.batch, self.groups * self.columns, *self.outputs))
        inputs = tuple(Slot(name, TensorType(F32, dims)) for name, dims in self.shapes.items())
        temps = tuple(Slot(name, out) for name in names[:-1])
        return Kernel("Conv", inputs, (Slot("y", out),), tuple(blocks), temps, (n, g, k, *space))

    def reference(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """In float64, by sliding windows."""
        wide = {name: array.astype(np.float64) for name, array in arrays.items()}
        x, rank = wide["x"], len(self.dims)
        if self.before == "scale":
            x = np.maximum(x * wide["scale"].reshape(1, -1, *[1] * rank), 0)
        x = np.pad(x, ((0, 0), (0, 0), *zip(self.pads, self.ends, strict=True)))
        windows = sliding_window_view(x, self.taps, tuple(range(2, 2 + rank)))
        windows = windows.reshape(self.batch, self.groups, self.depth, *windows.shape[2:])
        weights = wide["w"].reshape(self.groups, self.columns, self.depth, *self.taps)
        space, taps = "yxz"[:rank], "rst"[:rank]
        y = np.einsum(f"ngc{space}{taps},gkc{taps}->ngk{space}", windows, weights)
        y = y.reshape(self.batch, -1, *self.outputs)
        for kind in self.after:
            extra = wide[kind].reshape(1, -1, *[1] * rank) if kind == "bias" else wide.get(kind, 0.0)
            y = np.maximum(y, 0) if kind == "relu" else y + extra
        return np.asarray(y)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """Along one or two of one to three axes, of odd sizes and paddings, with tails of channels, grouped, in batches."""
    taps = draw(
        st.sampled_from(
            [
                (3, 3),
                (3, 3),
                (3, 3),
                (5, 5),
                (7, 7),
                (3, 5),
                (1, 3),
                (3, 1),
                (1, 7),
                (7, 1),
                (1, 5),
                (3,),
                (7,),
                (1, 3, 3),
            ]
        )
    )
    pads = [draw(st.integers(0, 3)) if many > 1 else 0 for many in taps]
    ends = [draw(st.sampled_from([pad, pad, 0, 2])) if many > 1 else 0 for pad, many in zip(pads, taps, strict=True)]
    dims = [
        max(draw(st.integers(1, 20 if len(taps) < 3 else 6)) + many - 1 - pad - end, 1)
        for many, pad, end in zip(taps, pads, ends, strict=True)
    ]
    return Filter(
        draw(st.sampled_from([1, 1, 2])),
        draw(st.sampled_from([1, 1, 1, 2])),
        draw(st.sampled_from([2, 3, 16, 17, 32, 40])),
        draw(st.sampled_from([16, 17, 24, 48, 70])),
        tuple(dims),
        taps,
        tuple(pads),
        tuple(ends),
        draw(st.sampled_from(["", "", "", "scale"])),
        tuple(draw(st.lists(st.sampled_from(["bias", "residual", "relu"]), max_size=3, unique=True))),
    )


def arrays_of(one: Filter, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.uniform(-1, 1, dims).astype(np.float32) for name, dims in one.shapes.items()}


def channels_last(id: int, type: TensorType, room: int, offset: int) -> Buffer:
    """With room for other channels beside its own, as a Concat's operand has it."""
    whole = Buffer.whole(id, type, Layout.channels_last(type.rank))
    wide = Buffer.whole(id, TensorType(F32, (type.dims[0], type.dims[1] + room, *type.dims[2:])), whole.layout)
    return replace(whole, strides=wide.strides, offset=offset)


def case_of(one: Filter, tile: Tile, *, room: int = 0, seed: int = 0, cuts: tuple[float, ...] = ()) -> Case:
    kernel = one.kernel()
    buffers = []
    for at, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        plain = slot.name == "w" or slot.type.rank == 1
        buffers.append(Buffer.whole(at, slot.type) if plain else channels_last(at, slot.type, room, min(room, 5)))
    constant = tuple(at for at, slot in enumerate(kernel.inputs) if slot.name in ("w", "bias", "scale"))
    return Case(kernel, tuple(buffers), tuple(arrays_of(one, seed).values()), tile, constant, cuts)


def odd_tile(outputs: tuple[int, ...], rows: int, row_tiles: int, vectors: int, panels: int, lanes: int) -> Tile:
    panel = vectors * lanes
    levels = (
        Level("transform", tuple(zip("yx"[-len(outputs) :], outputs, strict=True))),
        Level("block", (("m", rows * row_tiles), ("n", panel * panels))),
        Level("register", (("m", rows), ("n", panel))),
    )
    return Tile("winograd", levels)


def error_of(case: Case) -> float:
    """What the tile's form adds, by estimate."""
    view = as_convolution(case.workload)
    assert view is not None
    many = [case.tile.extent("transform", axis) for axis in "yx"[-len(view.sweeps) :]]
    forms = [form(outputs, sweep.tap.extent) for outputs, sweep in zip(many, view.sweeps, strict=True)]
    return relative_error(forms, view.depth.extent)


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> tuple[Filter, Case]:
    """A filter under a tile of the tile stage or an odd one, its tasks split over several calls."""
    one = draw(filters())
    room, seed = draw(st.sampled_from([0, 0, 8, 13])), draw(st.integers(0, 2**16))
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    case = case_of(one, Tile("loops"), room=room, seed=seed, cuts=cuts)
    view = as_convolution(case.workload)
    if view is None:  # a single output along an axis leaves nothing to sweep
        return one, case
    assert sums_channels(case.kernel)
    options = winograd_tiles(case.workload, target, draw(st.integers(1, 3)))
    tile = draw(st.sampled_from(options)).tile
    if draw(st.booleans()):
        outputs = tuple(tile.extent("transform", axis) for axis in "yx"[-len(view.sweeps) :])
        sizes = (draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2)))
        tile = odd_tile(outputs, *sizes, target.vector_floats)
    return one, replace(case, tile=tile)


def judge(pairs: list[tuple[Filter, Case]], target: CpuTarget) -> None:
    """Compiles all cases into one library and compares each with the reference."""
    library = Library.of([case for _, case in pairs], target, "-O1")
    for number, (one, case) in enumerate(pairs):
        (got,) = library.run(number, case)
        names = [slot.name for slot in case.kernel.inputs]
        want = one.reference(dict(zip(names, case.inputs, strict=True)))
        sums = one.reference({name: np.abs(array) for name, array in zip(names, case.inputs, strict=True)})
        slack = 2e-6 + 4 * error_of(case)
        description = f"{one}\n{case.tile}\n{library.lowered[number].text}"
        np.testing.assert_allclose(got, want, rtol=0, atol=slack * float(np.abs(sums).max()), err_msg=description)


@pytest.mark.parametrize("part", range(2))
def test_filters_under_any_tile_split_anywhere_mean_what_they_say(part: int) -> None:
    target = this_machine()
    drawn = [(one, case) for one, case in draws(cases(target), 100)[part::2] if case.tile.algorithm == "winograd"]
    drawn = [(one, case) for one, case in drawn if error_of(case) < MOST_ERROR]
    assert len(drawn) > 30
    judge(drawn, target)


WIDTHS = {profile.vector_floats: profile for profile in PROFILES if runs_here(profile)}


@pytest.mark.parametrize("lanes", WIDTHS)
def test_filters_are_right_at_every_width_of_vectors(lanes: int) -> None:
    target = resolve(WIDTHS[lanes].name)
    drawn = [(one, case) for one, case in draws(cases(target), 16) if case.tile.algorithm == "winograd"]
    judge([(one, case) for one, case in drawn if error_of(case) < MOST_ERROR], target)


# Edge values

PLAIN = Filter(1, 1, 24, 32, (13, 10), (3, 3), (1, 1), (1, 1), "", ("bias",))


def run_on(arrays: list[dict[str, np.ndarray]], outputs: tuple[int, int]) -> list[np.ndarray]:
    """PLAIN on several inputs."""
    tile = odd_tile(outputs, 5, 2, 1, 2, this_machine().vector_floats)
    cases = [replace(case_of(PLAIN, tile), inputs=tuple(one.values())) for one in arrays]
    lowered = [lower("k0_case", cases[0].workload, tile, this_machine())]
    code = build_library(kernel_sources(lowered), this_machine(), find_toolchain(), optimise="-O1")
    library = Library(lowered, loaded(code))
    return [library.run(0, case)[0] for case in cases]


@pytest.mark.parametrize("outputs", [(4, 4), (3, 6)])
def test_zeros_give_the_bias_and_powers_of_two_change_no_digit(outputs: tuple[int, int]) -> None:
    arrays = arrays_of(PLAIN, 1)
    nothing = {**arrays, "bias": np.zeros_like(arrays["bias"])}
    zeros = {**arrays, "x": np.zeros_like(arrays["x"])}
    large = {**nothing, "x": arrays["x"] * np.float32(2**100)}
    small = {**nothing, "x": arrays["x"] * np.float32(2**-90)}
    plain, still, up, down = run_on([nothing, zeros, large, small], outputs)
    assert (still == arrays["bias"].reshape(1, -1, 1, 1)).all()
    np.testing.assert_array_equal(up, plain * np.float32(2**100))
    np.testing.assert_array_equal(down, plain * np.float32(2**-90))


def test_what_is_not_finite_reaches_all_it_should_and_stays_in_its_tile() -> None:
    """Unlike a plain sum, a tile mixes its inputs.

    Outputs beside the window of a NaN may become NaN, those of other tiles may not.
    """
    arrays = arrays_of(PLAIN, 2)
    (clean,) = run_on([arrays], (4, 4))
    arrays["x"][0, 3, 5, 6] = np.nan
    (got,) = run_on([arrays], (4, 4))
    assert np.isnan(got[:, :, 4:7, 5:8]).all()
    np.testing.assert_array_equal(got[:, :, 8:], clean[:, :, 8:])
    np.testing.assert_array_equal(got[:, :, :4], clean[:, :, :4])
