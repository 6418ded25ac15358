from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.integer import integer_tiles
from compiler.devices.cpu.algorithms.sparse_dot import (
    FAR_BF16,
    FAR_INTEGER,
    NEAR_BF16,
    NEAR_INTEGER,
    SPARSE_BF16,
    SPARSE_INTEGER,
)
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import FAR_BYTES, NEAR_BYTES, PROFILES, CpuTarget, resolve, runs_here
from compiler.encodings import find
from compiler.encodings.encoding import DENSE, Use
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import Steered
from compiler.ir.tensor import Layout
from tests.compiler.devices.cpu.algorithms.test_integer import BYTES, Drawn, defined
from tests.compiler.devices.cpu.algorithms.test_sparse import Layer, Sparsity
from tests.compiler.devices.cpu.library import Case, Library, check, draws

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
OF_BF16 = [profile.name for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)]
PICKING = [name for name in HERE if resolve(name).multiplies_bytes]
FAR = [name for name in PICKING if resolve(name).picks_from(FAR_BYTES, 1)]
PICKS = (NEAR_INTEGER, FAR_INTEGER, NEAR_BF16, FAR_BF16)
INTEGERS = [
    *((SPARSE_INTEGER, name) for name in HERE),
    *((NEAR_INTEGER, name) for name in PICKING),
    *((FAR_INTEGER, name) for name in FAR),
]
FLOATS = [(algorithm, name) for algorithm in (SPARSE_BF16, NEAR_BF16, FAR_BF16) for name in OF_BF16]
CONSTANT = ("w", "bias", "scale")


@dataclass(frozen=True)
class Blocked(Sparsity):
    """Weights [lines, inputs, taps...] of which blocks of `lines` x `group` inputs are kept at a tap, or are zero."""

    group: int = 4

    def of(self, weights: np.ndarray, seed: int) -> np.ndarray:
        random = np.random.default_rng(seed)
        lines, inputs, *taps = weights.shape
        blocks = random.random((-(-lines // self.lines), -(-inputs // self.group), *taps)) < self.share
        mask = blocks.repeat(self.lines, 0).repeat(self.group, 1)[:lines, :inputs]
        return np.asarray(weights * mask).astype(weights.dtype)


@dataclass(frozen=True)
class BlockedCase(Case):
    """With what is known of the zeros in its constants."""

    @property
    def workload(self) -> Workload:
        known = (find(one, Use.BF16_PRODUCT) if at in self.constant else () for at, one in enumerate(self.inputs))
        return replace(super().workload, encodings=tuple((DENSE, *one) for one in known))


def channels_last(kernel: Kernel, given: list[np.ndarray], constant: tuple[int, ...]) -> BlockedCase:
    buffers = []
    for at, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        last = at not in constant and slot.type.rank > 2
        layout = Layout.channels_last(slot.type.rank) if last else None
        buffers.append(Buffer.whole(at, slot.type, layout) if layout else Buffer.whole(at, slot.type))
    return BlockedCase(kernel, tuple(buffers), tuple(given), constant=constant)


def drawn_sparsity(draw: st.DrawFn, anywhere: bool, group: int) -> Blocked:
    share = draw(st.sampled_from([0.02, 0.1, 0.3]))
    return Blocked(share, 1, 1) if anywhere else Blocked(share, draw(st.sampled_from([8, 16, 32])), group)


@st.composite
def of_bytes(draw: st.DrawFn, target: CpuTarget, algorithm: Algorithm) -> Case:
    """A convolution or a product of bytes, with zero points of all kinds, under a tile of the tile stage."""
    drawn = Drawn(draw, np.random.default_rng(draw(st.integers(0, 2**16))))
    a_type = draw(st.sampled_from(BYTES))
    sparsity = drawn_sparsity(draw, algorithm in PICKS, 4)
    channels, filters = draw(st.sampled_from([16, 20, 64])), draw(st.sampled_from([16, 19, 32, 40, 70]))
    attrs: dict[str, Attr] = {}
    seed = draw(st.integers(0, 2**16))
    if convolves := draw(st.booleans()):
        window = draw(st.sampled_from([(3, 3), (1, 3), (2, 2), (3,)]))
        pads, strides = ((draw(st.integers(0, 1)),) * 2 * len(window), (draw(st.integers(1, 2)),) * len(window))
        attrs = {"group": 1, "pads": pads, "strides": strides, "dilations": (1,) * len(window), "auto_pad": "NOTSET"}
        a = drawn.bytes(a_type, draw(st.integers(1, 2)), channels, *(draw(st.integers(4, 8)) for _ in window))
        b = sparsity.of(drawn.bytes(np.int8, filters, channels, *window), seed)
    else:
        a = drawn.bytes(a_type, draw(st.sampled_from([1, 3, 15, 33])), 4 * channels)
        b = np.ascontiguousarray(sparsity.of(drawn.bytes(np.int8, filters, 4 * channels), seed).T)
    a_zero, b_zero = drawn.zero(a_type), drawn.zero(np.int8, *drawn.per(filters))
    op = "ConvInteger" if convolves else "MatMulInteger"
    kernel, given = defined(op, [a, b, a_zero, b_zero], attrs, fixed=draw(st.booleans()))
    case = channels_last(kernel, given, tuple(range(1, len(given))))
    options = algorithm.tiles(case.workload, target, draw(st.integers(1, 4)))
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    return replace(case, tile=draw(st.sampled_from(options)).tile, cuts=cuts) if options else case


@pytest.mark.parametrize(("algorithm", "name"), INTEGERS, ids=lambda one: one if isinstance(one, str) else one.names[0])
def test_products_without_zeros_equal_their_definition_bit_by_bit(algorithm: Algorithm, name: str) -> None:
    target = resolve(name)
    drawn = [case for case in draws(of_bytes(target, algorithm), 40) if case.tile.algorithm in algorithm.names]
    assert len(drawn) > 25
    assert len({case.tile.extent("register", "n") for case in drawn}) > 1
    check(drawn, target, "-O1")


@st.composite
def of_floats(draw: st.DrawFn, target: CpuTarget, algorithm: Algorithm) -> tuple[Layer, Case]:
    """A convolution or a product under a tile of the tile stage."""
    taps = draw(st.sampled_from([(3, 3), (1, 3), (3,), ()]))
    one = Layer(
        draw(st.sampled_from([1, 2])) if taps else draw(st.sampled_from([1, 8, 33])),
        draw(st.sampled_from([32, 70])) * (1 if taps else 4),
        draw(st.sampled_from([16, 19, 40])),
        tuple(draw(st.integers(4, 9)) for _ in taps),
        taps,
        tuple(draw(st.integers(0, 1)) for _ in taps),
        tuple(draw(st.integers(1, 2)) for _ in taps),
        tuple(1 for _ in taps),
        drawn_sparsity(draw, algorithm in PICKS, 2),
        draw(st.sampled_from(["", "", "scale"])),
        tuple(draw(st.lists(st.sampled_from(["bias", "residual", "relu"]), max_size=2, unique=True))),
    )
    kernel = one.kernel()
    constant = tuple(at for at, slot in enumerate(kernel.inputs) if slot.name in CONSTANT)
    case = channels_last(kernel, list(one.arrays(draw(st.integers(0, 2**16))).values()), constant)
    options = algorithm.tiles(case.workload, target, draw(st.integers(1, 2)))
    return one, replace(case, tile=draw(st.sampled_from(options)).tile) if options else case


@pytest.mark.parametrize(("algorithm", "name"), FLOATS, ids=lambda one: one if isinstance(one, str) else one.names[0])
def test_products_of_bf16_without_zeros_are_off_by_their_rounding(algorithm: Algorithm, name: str) -> None:
    target = resolve(name)
    pairs = draws(of_floats(target, algorithm), 30)
    drawn = [(one, case) for one, case in pairs if case.tile.algorithm in algorithm.names]
    assert len(drawn) > 15
    library = Library.of([case for _, case in drawn], target, "-O1")
    for number, (one, case) in enumerate(drawn):
        (got,) = library.run(number, case)
        names = [slot.name for slot in case.kernel.inputs]
        arrays = dict(zip(names, case.inputs, strict=True))
        sums = one.reference({name: np.abs(array) for name, array in arrays.items()})
        np.testing.assert_allclose(got, one.reference(arrays), rtol=0, atol=2.0**-7 * sums.max(), err_msg=str(one))


def product(weights: np.ndarray, rows: int = 24) -> BlockedCase:
    """MatMulInteger of bytes by weights [lines, inputs], with zero points of 7 and 0."""
    a = np.random.default_rng(1).integers(0, 256, (rows, weights.shape[1])).astype(np.uint8)
    arrays = [a, np.ascontiguousarray(weights.T), np.asarray(7, np.uint8), np.asarray(0, np.int8)]
    kernel, given = defined("MatMulInteger", list(arrays), {}, fixed=True)
    return channels_last(kernel, given, tuple(range(1, len(given))))


@pytest.mark.parametrize("algorithm", [SPARSE_INTEGER, NEAR_INTEGER], ids=lambda one: one.names[0])
def test_panels_of_which_nothing_is_left_are_zero(algorithm: Algorithm) -> None:
    weights = np.zeros((64, 256), np.int8)
    weights[16:32, 4:8] = 5
    weights[40, 255] = -3
    if algorithm in PICKS and not PICKING:
        pytest.skip("this machine has no instruction that adds four products of bytes")
    target = resolve(PICKING[0] if algorithm in PICKS else HERE[0])
    case = product(weights)
    options = algorithm.tiles(case.workload, target, 1)
    assert options
    check([replace(case, tile=option.tile) for option in options], target, "-O1")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_the_fewer_blocks_are_kept_the_less_a_tile_should_take(profile: CpuTarget) -> None:
    each = []
    for share in (0.05, 0.2, 0.4):
        weights = Blocked(share, 16).of(np.full((128, 512), 3, np.int8), 0)
        case = product(weights, 196)
        sparse = SPARSE_INTEGER.tiles(case.workload, profile, 1)
        assert {option.tile.extent("register", "n") for option in sparse} <= {8, 16, 32}
        dense = min(option.seconds for option in integer_tiles(case.workload, profile, 1))
        each.append(min(option.seconds for option in sparse) / dense)
    assert each == sorted(each)
    assert each[0] < 0.5


@pytest.mark.parametrize("profile", [one for one in PROFILES if one.multiplies_bytes], ids=lambda profile: profile.name)
def test_zeros_anywhere_are_left_out_where_lanes_pick(profile: CpuTarget) -> None:
    assert profile.picks_from(NEAR_BYTES, 1)
    case = product(Blocked(0.1, 1, 1).of(np.full((128, 512), 3, np.int8), 0), 196)
    assert SPARSE_INTEGER.tiles(case.workload, profile, 1) == []
    picked = NEAR_INTEGER.tiles(case.workload, profile, 1)
    dense = min(option.seconds for option in integer_tiles(case.workload, profile, 1))
    assert min(option.seconds for option in picked) < 0.6 * dense
    assert "tw_pick_near(" in lower("k0_product", case.workload, picked[0].tile, profile).text


def test_weights_without_zeros_are_offered_no_tile() -> None:
    target = resolve(HERE[0])
    random = np.random.default_rng(3)
    dense = product(random.integers(1, 9, (64, 256)).astype(np.int8))
    scattered = product(Blocked(0.45, 1, 1).of(np.ones((64, 256), np.int8), 0))
    plain = replace(product(np.zeros((64, 256), np.int8)).workload, encodings=())
    for workload in (dense.workload, plain):
        assert NEAR_INTEGER.tiles(workload, target, 1) == []
        assert SPARSE_INTEGER.tiles(workload, target, 1) == []
        assert integer_tiles(workload, target, 1)
    assert SPARSE_INTEGER.tiles(scattered.workload, target, 1) == []


@pytest.mark.parametrize(
    ("algorithm", "sparsity"), [(SPARSE_INTEGER, Blocked(0.1, 16)), (FAR_INTEGER, Blocked(0.1, 1, 1))]
)
def test_packed_weights_are_smaller_and_no_others_are_timed(algorithm: Algorithm, sparsity: Blocked) -> None:
    weights = sparsity.of(np.full((128, 512), 3, np.int8), 0)
    case = product(weights)
    target = next(profile for profile in PROFILES if profile.picks_from(FAR_BYTES, 1))
    option = min(algorithm.tiles(case.workload, target, 1), key=lambda one: one.tile.extent("register", "n"))
    packing = lower("k0_product", case.workload, option.tile, target).packings[1]
    assert isinstance(packing, Steered)
    assert packing.elements < 0.4 * weights.size


@pytest.mark.skipif(not OF_BF16, reason="no bf16 are multiplied here")
def test_a_nan_that_only_zero_weights_meet_stays_out_of_the_result() -> None:
    target = resolve(OF_BF16[0])
    one = Layer(24, 256, 32, (), (), (), (), (), Blocked(0.1, 32, 2))
    arrays = one.arrays(0)
    unread = int(np.flatnonzero(~arrays["w"].any(0))[0])
    arrays["x"][3, unread] = np.nan
    case = channels_last(one.kernel(), list(arrays.values()), (1,))
    tiles = [option.tile for option in SPARSE_BF16.tiles(case.workload, target, 1)]
    assert tiles
    (got,) = Library.of([replace(case, tile=tiles[0])], target, "-O1").run(0, case)
    assert np.isfinite(got).all()
