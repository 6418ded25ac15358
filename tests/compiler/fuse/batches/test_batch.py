"""Which kernels compute each sample of a batch by itself, and that those for fewer samples compute the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st

from compiler.contract import CompileOptions, DimRange
from compiler.frontend import Loaded, load
from compiler.fuse import fuse
from compiler.fuse.batches.batch import Batch, batch_of
from compiler.fuse.batches.sliced import runs_once, sliced
from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Cost, Tile
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.networks import Network, graph_of, networks
from tests.parse import parse_kernel_graph

Build = Callable[[Network, str], str]
SIZE = 4
DRAWN = 30


def check(model: onnx.ModelProto, size: int, seed: int = 3) -> Batch:
    """Its batch, after each divisor of it gave what the whole does: sums may be added in another order."""
    graph = graph_of(model)
    kernels = fuse(graph).kernels
    batch = batch_of(kernels)
    assert isinstance(batch, Batch), batch
    assert batch.size == size
    inputs = [*sample_inputs(graph, seed).values()]
    whole = stepped(kernels, inputs)
    for samples in [one for one in range(1, size) if size % one == 0]:
        fewer = batch.of(samples)
        fewer.verify()
        for first in range(0, size, samples):
            part = [one[first : first + samples] if len(one) == size else one for one in inputs]
            for got, want in zip(stepped(fewer, part), whole, strict=True):
                assert len(want) % size == 0
                unit = len(want) // size
                np.testing.assert_allclose(got, want[unit * first : unit * (first + samples)], rtol=1e-5, atol=1e-6)
    return batch


BATCHES = st.sampled_from([2, 4, 6]).flatmap(lambda size: st.tuples(st.just(size), networks(9, size)))


@cache
def drawn() -> list[tuple[int, onnx.ModelProto]]:
    return draws(BATCHES, DRAWN)


@pytest.mark.parametrize("at", range(DRAWN))
def test_networks_of_samples_compute_the_same_in_slices(at: int) -> None:
    size, model = drawn()[at]
    check(model, size)


def built(build: Build, *shape: int) -> onnx.ModelProto:
    net = Network()
    return net.model([build(net, net.input(*shape))])


def attention(net: Network, x: str) -> str:
    """Heads and samples are one axis of the products in the middle."""
    samples, rows, width = net.shapes[x]
    heads = 3

    def head(name: str, perm: list[int]) -> str:
        projected = net.node("MatMul", [name, net.weight(width, width)], (samples, rows, width))
        shape = [samples, rows, heads, width // heads]
        cut = net.node("Reshape", [projected, net.constant(np.array(shape))], tuple(shape))
        turned = net.node("Transpose", [cut], tuple(shape[at] for at in perm), perm=perm)
        flat = (samples * heads, *net.shapes[turned][2:])
        return net.node("Reshape", [turned, net.constant(np.array(flat))], flat)

    scores = net.node("MatMul", [head(x, [0, 2, 1, 3]), head(x, [0, 2, 3, 1])], (samples * heads, rows, rows))
    shares = net.node("Softmax", [scores], (samples * heads, rows, rows), axis=-1)
    mixed = net.node("MatMul", [shares, head(x, [0, 2, 1, 3])], (samples * heads, rows, width // heads))
    shape = (samples, heads, rows, width // heads)
    split = net.node("Reshape", [mixed, net.constant(np.array(shape))], shape)
    back = net.node("Transpose", [split], (samples, rows, heads, width // heads), perm=[0, 2, 1, 3])
    joined = net.node("Reshape", [back, net.constant(np.array([samples, rows, width]))], (samples, rows, width))
    return net.node("Add", [joined, x], (samples, rows, width))


def token_for_each(net: Network, x: str) -> str:
    """A constant that an exporter repeated for each sample, before what is computed."""
    samples, rows, width = net.shapes[x]
    token = net.constant(np.repeat(net.random.standard_normal((1, 1, width)), samples, 0).astype(np.float32))
    joined = net.node("Concat", [token, x], (samples, rows + 1, width), axis=1)
    return net.node("MatMul", [joined, net.weight(width, 5)], (samples, rows + 1, 5))


def embedding(net: Network, x: str) -> str:
    """Rows of a table at numbers that are computed from each sample."""
    samples, rows, width = net.shapes[x]
    numbers = net.node("ArgMax", [x], (samples, rows), axis=2, keepdims=0)
    return net.node("Gather", [net.weight(width, 6), numbers], (samples, rows, 6), axis=0)


@pytest.mark.parametrize("build", [attention, token_for_each, embedding], ids=lambda one: one.__name__)
def test_samples_that_share_axes_with_others_are_told_apart(build: Build) -> None:
    batch = check(built(build, SIZE, 5, 6), SIZE)
    assert len(batch.calls) == len(batch.kernels.calls)


def test_an_input_without_the_batch_is_the_same_for_all_samples() -> None:
    net = Network()
    x, scale = net.input(SIZE, 3, 5), net.input(3, 5)
    check(net.model([net.node("Tanh", [net.node("Mul", [x, scale], (SIZE, 3, 5))], (SIZE, 3, 5))]), SIZE)


def test_a_result_that_no_sample_takes_part_in_is_made_once() -> None:
    net = Network()
    x, table = net.input(SIZE, 3, 5), net.input(3, 5)
    halved = net.node("Exp", [table], (3, 5))
    kernels = fuse(graph_of(net.model([net.node("Mul", [x, halved], (SIZE, 3, 5)), halved]))).kernels
    batch = batch_of(kernels)
    assert isinstance(batch, Batch), batch
    once = [call for call in kernels.calls if runs_once(batch, call)]
    outer, region = sliced(batch, batch.of(1), SIZE, [Tile("loops")], [Cost(1.0, "model")])
    outer.verify()
    assert [call.outputs for call in outer.calls] == [*(call.outputs for call in once), (kernels.outputs[0],)]
    assert len(region.bodies[0].calls) == len(kernels.calls) - len(once) == 1


def over_samples(net: Network, x: str) -> str:
    return net.node("Softmax", [x], net.shapes[x], axis=0)


def centred(net: Network, x: str) -> str:
    mean = net.node("ReduceMean", [x, net.constant(np.array([0]))], (1, *net.shapes[x][1:]), keepdims=1)
    return net.node("Sub", [x, mean], net.shapes[x])


def reversed_samples(net: Network, x: str) -> str:
    order = net.constant(np.arange(SIZE)[::-1])
    return net.node("Tanh", [net.node("Gather", [x, order], net.shapes[x], axis=0)], net.shapes[x])


def own_weights(net: Network, x: str) -> str:
    return net.node("Mul", [x, net.weight(SIZE, 1, 1)], net.shapes[x])


def running_sum(net: Network, x: str) -> str:
    return net.node("CumSum", [x, net.constant(np.array(0))], net.shapes[x])


def samples_last(net: Network, x: str) -> str:
    samples, rows, width = net.shapes[x]
    return net.node("Transpose", [x], (rows, width, samples), perm=[1, 2, 0])


def with_all_others(net: Network, x: str) -> str:
    samples, rows, width = net.shapes[x]
    flat = net.node("Reshape", [x, net.constant(np.array([samples, -1]))], (samples, rows * width))
    return net.node("MatMul", [flat, net.node("Transpose", [flat], (rows * width, samples))], (samples, samples))


def one_result(net: Network, x: str) -> str:
    return net.node("ReduceMax", [x, net.constant(np.array([0, 1, 2]))], (1, 1, 1), keepdims=1)


def shifted(net: Network, x: str) -> str:
    """Each sample is that before it, and the first one is zero: a position says which is which."""
    samples, rows, width = net.shapes[x]
    padded = net.node("Pad", [x, net.constant(np.array([1, 0, 0, 0, 0, 0]))], (samples + 1, rows, width))
    ends = [net.constant(np.array([end], np.int64)) for end in (0, samples, 0)]
    return net.node("Tanh", [net.node("Slice", [padded, *ends], (samples, rows, width))], (samples, rows, width))


MIXED = [
    shifted,
    over_samples,
    centred,
    reversed_samples,
    own_weights,
    running_sum,
    samples_last,
    with_all_others,
    one_result,
]


@pytest.mark.parametrize("build", MIXED, ids=lambda one: one.__name__)
def test_what_depends_on_other_samples_is_refused_with_the_reason(build: Build) -> None:
    found = batch_of(fuse(graph_of(built(build, SIZE, 5, 6))).kernels)
    assert isinstance(found, str)
    assert found


@pytest.mark.parametrize(("most", "is_own"), [(1, True), (2, False)])
def test_what_is_read_at_a_number_must_be_of_the_same_sample(most: int, is_own: bool) -> None:
    """Two numbers lie behind each other for each sample; one of three would be of the next one."""
    kernels = parse_kernel_graph(
        f"""kernels(b0, b1) -> (b3)
  b0: f32[4, 2] plain
  b1: i64[4] plain
  b2: f32[8] plain
  b3: f32[4] plain
  k0: kernel Flatten(in x0: f32[4, 2]; out y0: f32[8])
    for n:4, c:2
      y0[2*n + c] = neg(x0[n, c])
  k1: kernel Gather(in x0: f32[8], in x1: i64[4]; out y0: f32[4])
    for n:4
      y0[n] = x0[2*n + [x1[n] in 0..{most}]]
  b2 = k0(b0)
  b3 = k1(b2, b1)
"""
    )
    found = batch_of(kernels)
    assert isinstance(found, Batch) == is_own, found
    assert is_own or "across samples" in str(found)


def test_samples_must_lie_one_after_another() -> None:
    """In the value between these kernels the samples of a row are neighbours."""
    kernels = parse_kernel_graph("""kernels(b0) -> (b2)
  b0: f32[4, 3] plain
  b1: f32[3, 4] plain
  b2: f32[4, 3] plain
  k0: kernel Transpose(in x0: f32[4, 3]; out y0: f32[3, 4])
    for n:4, c:3
      y0[c, n] = neg(x0[n, c])
  k1: kernel Exp(in x0: f32[3, 4]; out y0: f32[4, 3])
    for n:4, c:3
      y0[n, c] = exp(x0[c, n])
  b1 = k0(b0)
  b2 = k1(b1)
""")
    assert "one after another" in str(batch_of(kernels))


@pytest.mark.parametrize(("place", "is_own"), [("n", True), ("m", False), ("n + m", False)])
def test_a_bound_by_the_size_of_the_batch_must_be_on_the_sample(place: str, is_own: bool) -> None:
    kernels = parse_kernel_graph(f"""kernels(b0, b1) -> (b2)
  b0: f32[4, 4] plain
  b1: i64[] plain
  b2: f32[4, 4] plain
  k0: kernel PadBeyond(in x0: f32[4, 4], in x1: i64[]; out y0: f32[4, 4])
    for n:4, m:4
      y0[n, m] = where(lt(#({place}):i64, x1[]), exp(x0[n, m]), 0.0:f32)
  b2 = k0(b0, b1)
""")
    found = batch_of(kernels, 1)
    assert isinstance(found, Batch) == is_own, found
    if isinstance(found, Batch):
        assert [call.inputs for call in found.of(1).calls] == [(0,)]


@pytest.mark.parametrize("samples", [0, 1])
def test_a_single_sample_or_none_is_no_batch(samples: int) -> None:
    kernels: KernelGraph = fuse(graph_of(built(attention, samples, 5, 6))).kernels
    assert batch_of(kernels) is None


def opened(build: Build, *shape: int, sizes: DimRange) -> Loaded:
    """The model with its first dimension left open."""
    net = Network()
    x = net.input(*shape)
    model = net.model([build(net, x)])
    for one in (*model.graph.input, *model.graph.output):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    return load(model.SerializeToString(), CompileOptions(dims={"batch": sizes}), OPERATORS)


def rows_and_heads(net: Network, x: str) -> str:
    """Rows of all samples are one axis of a product, as exporters write it with -1."""
    samples, rows, width = net.shapes[x]
    flat = net.node("Reshape", [x, net.constant(np.array([-1, width]))], (samples * rows, width))
    product = net.node("Tanh", [net.node("MatMul", [flat, net.weight(width, 4)], (samples * rows, 4))], ())
    return net.node("Reshape", [product, net.constant(np.array([-1, rows, 4]))], (samples, rows, 4))


def gated(net: Network, x: str) -> str:
    samples, channels = net.shapes[x][:2]
    mean = net.node("ReduceMean", [x, net.constant(np.array([2]))], (samples, channels, 1), keepdims=1)
    return net.node("Mul", [x, net.node("Sigmoid", [mean], (samples, channels, 1))], net.shapes[x])


@pytest.mark.parametrize("build", [rows_and_heads, gated], ids=lambda one: one.__name__)
def test_a_batch_of_a_size_that_is_given_asks_for_it_no_more(build: Build) -> None:
    loaded = opened(build, SIZE, 5, 6, sizes=DimRange(1, 2, SIZE))
    kernels = fuse(loaded.graph).kernels
    count = kernels.inputs[1]
    batch = batch_of(kernels, count)
    assert isinstance(batch, Batch), batch
    one = batch.of(1)
    one.verify()
    apart = [call for call in one.calls if batch.along.keys().isdisjoint(call.outputs)]
    assert all(count not in call.inputs for call in one.calls if call not in apart)
    given = np.random.default_rng(4).standard_normal((SIZE, 5, 6)).astype(np.float32)
    for size in range(1, SIZE + 1):
        inside = np.where(np.arange(SIZE)[:, None, None] < size, given, np.float32(0))
        whole, *_ = stepped(kernels, [inside, np.array(size)])
        parts = [stepped(one, [given[at : at + 1], np.array(size)])[0] for at in range(size)]
        np.testing.assert_allclose(np.concatenate(parts), whole[:size], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [centred, over_samples], ids=lambda one: one.__name__)
def test_what_depends_on_how_many_samples_there_are_is_refused(build: Build) -> None:
    kernels = fuse(opened(build, SIZE, 5, 6, sizes=DimRange(1, 2, SIZE)).graph).kernels
    assert isinstance(batch_of(kernels, kernels.inputs[1]), str)


def test_a_bound_by_another_size_stays() -> None:
    net = Network()
    x = net.input(SIZE, 5, 6)
    model = net.model([net.node("Softmax", [x], (SIZE, 5, 6), axis=1)])
    for one in (*model.graph.input, *model.graph.output):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
        one.type.tensor_type.shape.dim[1].dim_param = "rows"
    dims = {"batch": DimRange(1, 2, SIZE), "rows": DimRange(1, 3, 5)}
    loaded = load(model.SerializeToString(), CompileOptions(dims=dims), OPERATORS)
    kernels = fuse(loaded.graph).kernels
    batch = batch_of(kernels, kernels.inputs[1])
    assert isinstance(batch, Batch), batch
    given = np.random.default_rng(4).standard_normal((SIZE, 5, 6)).astype(np.float32)
    given[:, 3:] = 0
    whole, *_ = stepped(kernels, [given, np.array(SIZE), np.array(3)])
    for at in range(SIZE):
        (part, *_) = stepped(batch.of(1), [given[at : at + 1], np.array(SIZE), np.array(3)])
        np.testing.assert_allclose(part[:, :3], whole[at : at + 1, :3], rtol=1e-5, atol=1e-6)


def test_a_constant_of_samples_is_cut_and_kept_in_one_piece() -> None:
    batch = check(built(token_for_each, SIZE, 5, 6), SIZE)
    cut = batch.of(2)
    (id,) = (id for id in batch.along if id in batch.kernels.constants)
    assert (len(batch.kernels.constants[id]), len(cut.constants[id])) == (SIZE, 2)
    assert cut.constants[id].flags.c_contiguous
