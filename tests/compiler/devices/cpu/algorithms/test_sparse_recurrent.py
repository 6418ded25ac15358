"""Recurrent layers by weights with zeros in blocks and anywhere, beside the float64 reference; the tiles there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.codegen.calls import workload_of
from compiler.devices.cpu.algorithms.recurrent.lowering import recurrent_tiles
from compiler.devices.cpu.algorithms.recurrent.sparse import PICKED, sparse_recurrent_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.encodings import find
from compiler.encodings.encoding import DENSE, Use
from compiler.encodings.zeros import leaves_out
from compiler.forms.recurrence import recurs_by
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.packing import Steered
from compiler.ir.tensor import DType, TensorType
from tests.compiler.devices.cpu.algorithms.test_recurrent import GATES, Layer, case_of, check, layers
from tests.compiler.devices.cpu.library import Case, Library, draws

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
WEIGHTS = (1, 2)
"""Positions of W and R among the inputs of a layer."""
FEATURES, HIDDEN = 40, 48


class PrunedCase(Case):
    """With what is known of the zeros in its weights."""

    @property
    def workload(self) -> Workload:
        known = (find(one, Use.RECURRENCE) if at in WEIGHTS else () for at, one in enumerate(self.inputs))
        return replace(super().workload, encodings=tuple((DENSE, *one) for one in known))


def in_blocks(weights: np.ndarray, gates: int, share: float, seed: int) -> np.ndarray:
    """Weights [directions, gates, inputs] of which blocks of so many gates at one input are kept, or are zero."""
    directions, lines, inputs = weights.shape
    blocks = np.random.default_rng(seed).random((directions, -(-lines // gates), inputs)) < share
    return np.asarray(weights * blocks.repeat(gates, 1)[:, :lines])


def pruned(layer: Layer) -> tuple[PrunedCase, tuple[np.ndarray, ...]]:
    """The layer's kernel on plain buffers, and what the reference says in float64."""
    case, wanted = case_of(layer)
    return PrunedCase(case.kernel, case.buffers, case.inputs, constant=case.constant), wanted


def sized(layer: Layer, hidden: int, width: int, shares: tuple[float, float], seed: int) -> Layer:
    """A layer with as many features and hidden units as blocks take, of whose W and R such shares are kept."""
    random = np.random.default_rng(seed)
    count = len(layer.arrays[1]) if layer.arrays[1] is not None else 1
    gates, attrs = GATES[layer.op] * hidden, {**layer.attrs, "hidden_size": hidden}

    def some(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) * 0.5).astype(np.float32)

    x, *_ = layer.arrays
    assert x is not None
    state = (x.shape[0], count, hidden) if layer.attrs["layout"] else (count, x.shape[1], hidden)
    shapes = [
        (*x.shape[:2], FEATURES), (count, gates, FEATURES), (count, gates, hidden),
        (count, 2 * gates), (), state, state, (count, 3 * hidden),
    ]  # fmt: skip
    arrays = [
        one if one is None or at == 4 else some(*shape)
        for at, (one, shape) in enumerate(zip(layer.arrays, shapes, strict=False))
    ]
    for at, share in zip(WEIGHTS, shares, strict=True):
        weights = arrays[at]
        assert weights is not None
        arrays[at] = in_blocks(weights, width, share, seed + at)
    return replace(layer, arrays=tuple(arrays), attrs=attrs)


@st.composite
def drawn(draw: st.DrawFn, target: CpuTarget) -> tuple[Case, tuple[np.ndarray, ...]]:
    """Any layer, with W or without zeros in it, R with few blocks or none at all, under any tile that is offered.

    Blocks are of one gate where zeros lie anywhere.
    """
    width = draw(st.sampled_from([1, 1, 8, 16, 32]))
    hidden = draw(st.sampled_from([HIDDEN, 40, 64, 35]))
    shares = draw(st.sampled_from([0.1, 1.0])), draw(st.sampled_from([0.0, 0.05, 0.2]))
    case, wanted = pruned(sized(draw(layers()), hidden, width, shares, draw(st.integers(0, 2**16))))
    options = sparse_recurrent_tiles(case.workload, target, 1)
    assume(options)
    tile = draw(st.sampled_from(options)).tile
    return replace(case, tile=tile), wanted


@pytest.mark.parametrize("profile", HERE)
def test_layers_without_their_zeros_mean_what_the_reference_says(profile: str) -> None:
    target = resolve(profile)
    found = draws(drawn(target), 24)
    assert len({case.kernel.family for case, _ in found}) == 3
    check(found, target)


def layer(op: str, hidden: int, shares: tuple[float, float], *, width: int = 16, directions: int = 1) -> Layer:
    """One of zeros in blocks, five steps long, without what is optional."""
    gates = GATES[op] * hidden
    shapes = ((5, 1, FEATURES), (directions, gates, FEATURES), (directions, gates, hidden))
    direction = "bidirectional" if directions == 2 else "forward"
    attrs = {"direction": direction, "hidden_size": hidden, "layout": 0}
    activations = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}[op]
    extra = {"GRU": {"linear_before_reset": 0}, "LSTM": {"input_forget": 0}}.get(op, {})
    bare = Layer(op, tuple(np.zeros(shape, np.float32) for shape in shapes),
                 {**attrs, **extra, "activations": activations * directions}, 1)  # fmt: skip
    return sized(bare, hidden, width, shares, 5)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("op", GATES)
def test_the_more_zeros_the_less_time_is_foreseen(op: str, profile: CpuTarget) -> None:
    each = []
    for share in (0.05, 0.2, 0.4):
        case, _ = pruned(layer(op, 128, (share, share), width=32))
        options = sparse_recurrent_tiles(case.workload, profile, 1)
        assert options
        assert all(leaves_out(option.tile.algorithm) for option in options)
        dense = min(option.seconds for option in recurrent_tiles(case.workload, profile, 1))
        each.append(min(option.seconds for option in options) / dense)
    assert each == sorted(each)
    assert each[0] < 1


@pytest.mark.parametrize(
    ("one", "blocks", "picks"),
    [
        (layer("LSTM", HIDDEN, (1.0, 0.1)), [16, 32], [16, 32]),
        (layer("LSTM", HIDDEN, (0.1, 1.0)), [], []),
        (layer("LSTM", 35, (0.1, 0.1)), [16, 32], [16, 32]),
        (layer("GRU", HIDDEN, (0.1, 0.1)), [16], [16]),
        (layer("GRU", 35, (0.1, 0.1)), [], []),
        (layer("LSTM", HIDDEN, (0.1, 0.2), width=1), [], [16, 32]),
        (layer("LSTM", HIDDEN, (0.1, 0.6), width=1), [], []),
    ],
    ids=[
        "W is dense", "R is dense", "last panel narrow", "gates apart", "gates between blocks", "zeros anywhere",
        "few zeros anywhere",
    ],
)  # fmt: skip
def test_tiles_are_offered_for_panels_of_which_the_zeros_of_the_state_are_known(
    one: Layer, blocks: list[int], picks: list[int]
) -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == 16)
    case, _ = pruned(one)
    options = sparse_recurrent_tiles(case.workload, target, 1)
    found = sorted((option.tile.extent("vector", "k"), option.tile.extent("vector", "n")) for option in options)
    windows = target.float_windows
    assert found == [(0, width) for width in blocks] + [(window, width) for window in windows for width in picks]
    assert {option.tile.algorithm for option in options if option.tile.extent("vector", "k")} <= {PICKED}
    assert recurrent_tiles(case.workload, target, 1)


@pytest.mark.parametrize(
    ("vectors", "windows"), [(16, (16, 32)), (8, (8, 16)), (4, (16,))], ids=["AVX-512", "AVX2", "NEON"]
)
def test_lanes_pick_from_as_many_elements_as_instructions_reach(vectors: int, windows: tuple[int, ...]) -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == vectors)
    case, _ = pruned(layer("LSTM", HIDDEN, (0.1, 0.1), width=1))
    options = [one for one in sparse_recurrent_tiles(case.workload, target, 1) if one.tile.algorithm == PICKED]
    assert {one.tile.extent("vector", "k") for one in options} == {*windows}
    for window in windows:
        tile = next(one.tile for one in options if one.tile.extent("vector", "k") == window)
        assert f"tw_pick_float_of_{window}(x" in lower("k0_layer", case.workload, tile, target).text


def test_a_state_that_is_narrower_than_a_window_is_not_picked_from_it() -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == 16)
    case, _ = pruned(layer("LSTM", 24, (0.1, 0.1), width=1))
    options = sparse_recurrent_tiles(case.workload, target, 1)
    assert {one.tile.extent("vector", "k") for one in options if one.tile.algorithm == PICKED} == {16}


@pytest.mark.parametrize(("width", "most"), [(16, 0.2), (1, 0.4)])
def test_packed_weights_of_both_directions_are_smaller_and_no_others_are_timed(width: int, most: float) -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == 16)
    case, _ = pruned(layer("LSTM", 128, (0.1, 0.1), width=width, directions=2))
    options = sparse_recurrent_tiles(case.workload, target, 1)
    windows = (0,) if width > 1 else target.float_windows
    tiles = [one.tile for one in options if one.tile.extent("vector", "k") in windows]
    tile = next(tile for tile in tiles if tile.extent("vector", "n") == 16)
    packings = lower("k0_layer", case.workload, tile, target).packings
    for at in WEIGHTS:
        packing = packings[at]
        assert isinstance(packing, Steered)
        assert packing.elements < most * case.inputs[at].nbytes
        assert packing.specimen().shape == packing.pack(case.inputs[at]).shape


@pytest.mark.parametrize("profile", HERE[:1])
def test_a_nan_that_only_zero_weights_meet_stays_out_of_the_result(profile: str) -> None:
    target = resolve(profile)
    one = layer("RNN", 128, (0.1, 0.1), width=32)
    x, weights, *others = one.arrays
    assert x is not None
    assert weights is not None
    spoilt, without = x.copy(), weights.copy()
    spoilt[:, :, 3] = np.nan
    without[:, :, 3] = 0
    case, _ = pruned(replace(one, arrays=(spoilt, without, *others)))
    case = replace(case, tile=sparse_recurrent_tiles(case.workload, target, 1)[0].tile)
    (got, *_) = Library.of([case], target, "-O1").run(0, case)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("profile", HERE[:1])
def test_deep_sums_are_taken_in_stretches(profile: str) -> None:
    """More rows are kept than are summed in one register."""
    target = resolve(profile)
    case, wanted = pruned(layer("RNN", 800, (0.1, 0.5), width=32))
    case = replace(case, tile=sparse_recurrent_tiles(case.workload, target, 1)[0].tile)
    (got, *_) = Library.of([case], target, "-O1").run(0, case)
    np.testing.assert_allclose(got, wanted[0], rtol=1e-4, atol=1e-4)


def test_what_a_sequential_kernel_multiplies_by_are_matrices_that_its_sums_read() -> None:
    one = layer("LSTM", HIDDEN, (0.1, 0.1))
    bias = np.ones((1, 8 * HIDDEN), np.float32)
    case, _ = pruned(replace(one, arrays=(*one.arrays, bias)))
    assert [recurs_by(case.kernel, slot) for slot in case.kernel.inputs] == [True, True, True, False]
    matrix = case.kernel.inputs[2]
    vector = replace(matrix, type=TensorType(DType.F32, matrix.type.dims[-1:]))
    assert not recurs_by(case.kernel, vector)
    assert not recurs_by(replace(case.kernel, sequential=()), matrix)


def test_constants_tell_of_blocks_of_one_input_only_where_a_sequential_kernel_reads_them() -> None:
    case, _ = pruned(layer("RNN", HIDDEN, (0.1, 0.1)))
    inputs, outputs = tuple(range(len(case.inputs))), tuple(range(len(case.inputs), len(case.buffers)))
    buffers = {at: Buffer.whole(at, one.type) for at, one in enumerate(case.buffers)}
    constants = {at: case.inputs[at] for at in WEIGHTS}
    call = Call(case.kernel, inputs, outputs)
    graph = KernelGraph(buffers, (call,), (0,), outputs, constants)
    weights = find(case.inputs[2], Use.RECURRENCE)
    assert weights
    assert [graph.encodings(at, Use.RECURRENCE) for at in (0, 2)] == [(), weights]
    assert workload_of(graph, call).encodings[2] == (DENSE, *weights)
    parallel = replace(call, kernel=replace(case.kernel, sequential=()))
    assert replace(graph, calls=(parallel,)).encodings(2, Use.RECURRENCE) == ()
