from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest

from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Load
from compiler.ir.graph import Graph
from compiler.ir.index import Axis, FloorDiv, Index, Mod
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.plans.accesses import written_over
from compiler.ir.tensor import DType
from compiler.measure.memory import allocate, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.devices.cpu.library import draws
from tests.compiler.networks import Network, graph_of, networks
from tests.compiler.rewrite.sketch import Sketch


def stepped(kernels: KernelGraph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a kernel graph, its calls carried out one by one as they are defined."""
    memories = {storage: allocate(count) for storage, count in kernels.storage_bytes.items()}

    def put(id: int, array: np.ndarray) -> None:
        write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)

    def get(id: int) -> np.ndarray:
        return read_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id])

    for id, array in [*kernels.constants.items(), *zip(kernels.inputs, inputs, strict=True)]:
        put(id, array)
    for call in kernels.calls:
        assert isinstance(call.kernel, Kernel)
        operands = [get(id) for id in (*call.inputs, *call.outputs)]
        for id, array in zip(call.outputs, evaluate(updating(call.kernel), operands), strict=True):
            put(id, array)
    return [get(id) for id in kernels.outputs]


def updating(kernel: Kernel) -> Kernel:
    """The kernel with what its outputs held before as further inputs.

    Of a Concat, some parts may be written by others.
    """
    held = tuple(Slot(f"held_{slot.name}", slot.type) for slot in kernel.outputs)
    copies = []
    for slot, old in zip(kernel.outputs, held, strict=True):
        axes = tuple(Axis(f"held_{slot.name}_{at}", extent) for at, extent in enumerate(slot.type.dims))
        index = tuple(map(Index.of, axes))
        copies.append(Block(axes, (Load(old.name, index, slot.type.dtype),), (Store(slot.name, index),)))
    outer = replace(kernel, inputs=(*kernel.inputs, *held))
    if kernel.shared:
        return outer
    return replace(outer, blocks=(*copies, *kernel.blocks))


def agrees(graph: Graph) -> KernelGraph:
    random = np.random.default_rng(3)
    inputs = [random.uniform(-1, 1, graph.type(id).dims).astype(np.float32) for id in graph.inputs]
    wanted = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, keep=list(graph.outputs))
    kernels = fuse(graph).kernels
    kernels.verify()
    for id, got in zip(graph.outputs, stepped(kernels, inputs), strict=True):
        np.testing.assert_allclose(got, wanted[id], rtol=1e-4, atol=1e-4, err_msg=f"{graph}\n{kernels}")
    return kernels


@pytest.mark.parametrize("part", range(2))
def test_kernels_of_random_networks_mean_what_the_network_says(part: int) -> None:
    for model in draws(networks(), 120)[part::2]:
        agrees(graph_of(model))


def residual_block() -> onnx.ModelProto:
    net = Network()
    x = net.input(1, 8, 6, 6)
    y = net.node("Conv", [x, net.weight(8, 8, 3, 3), net.weight(8)], (1, 8, 6, 6), pads=[1] * 4)
    y = net.node("Relu", [net.node("Add", [y, x], (1, 8, 6, 6))], (1, 8, 6, 6))
    return net.model([y])


def test_a_residual_block_is_one_kernel() -> None:
    kernels = agrees(graph_of(residual_block()))
    assert [call.kernel.family for call in kernels.calls] == ["Conv+Add+Relu"]
    (call,) = kernels.calls
    assert str(call.kernel) == RESIDUAL.strip()


RESIDUAL = """
kernel "Conv+Add+Relu"(in x0: f32[1, 8, 6, 6], in x1: f32[8, 8, 3, 3], in x2: f32[8]; \
temp t0: f32[1, 8, 6, 6], temp t1: f32[1, 8, 6, 6], temp t2: f32[1, 8, 6, 6]; out y0: f32[1, 8, 6, 6])
  for n:1, k:8, oy:6, ox:6
    t0[0, k, oy, ox] = sum<f32> c:8, r:3, s:3 . mul(where(and(and(ge(#(oy + r - 1):i64, 0:i64), \
lt(#(oy + r - 1):i64, 6:i64)), and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, 6:i64))), x0[0, c, oy + r - 1, \
ox + s - 1], 0.0:f32), x1[k, c, r, s])
    t1[0, k, oy, ox] = add(t0[0, k, oy, ox], x2[k])
    t2[0, k, oy, ox] = add(t1[0, k, oy, ox], x0[0, k, oy, ox])
    y0[0, k, oy, ox] = max(t2[0, k, oy, ox], 0.0:f32)
"""


def dense_block(layers: int, *, also: int | None = None) -> tuple[Network, list[str], str]:
    net = Network()
    x = net.input(1, 8, 6, 6)
    kept = [net.node("Conv", [x, net.weight(8, 8, 1, 1)], (1, 8, 6, 6))]
    joined, whole = [], kept[0]
    for _ in range(layers):
        new = net.node("Conv", [whole, net.weight(4, net.shapes[whole][1], 1, 1)], (1, 4, 6, 6))
        shape = (1, net.shapes[whole][1] + 4, 6, 6)
        whole = net.node("Concat", [whole, new], shape, axis=1)
        joined.append(whole)
    end = net.node("Conv", [whole, net.weight(8, net.shapes[whole][1], 1, 1)], (1, 8, 6, 6))
    return net, joined, end


def test_a_chain_of_concats_shares_one_storage_and_copies_nothing() -> None:
    net, _, end = dense_block(3)
    kernels = agrees(graph_of(net.model([end])))
    assert not any("Concat" in call.kernel.family for call in kernels.calls)
    assert len({kernels.buffers[call.outputs[0]].storage for call in kernels.calls[:-1]}) == 1


def test_a_concat_in_the_chain_that_is_an_output_too_is_written() -> None:
    net, joined, end = dense_block(3)
    agrees(graph_of(net.model([joined[0], end])))
    agrees(graph_of(net.model([joined[1], joined[0], end])))


def test_a_value_joined_with_itself_is_written_twice() -> None:
    net = Network()
    x = net.input(1, 4, 6, 6)
    y = net.node("Relu", [x], (1, 4, 6, 6))
    agrees(graph_of(net.model([net.node("Concat", [y, y, x], (1, 12, 6, 6), axis=1)])))


def added_between_pools(*operands: Callable[[Network, str], str]) -> tuple[KernelGraph, int]:
    """Some values made of one, added, between two poolings, which keep the addition a kernel of its own.

    It also returns which call that is.
    """
    net, shape = Network(), (1, 4, 6, 6)
    window = {"kernel_shape": [3, 3], "pads": [1] * 4}
    x = net.node("MaxPool", [net.input(*shape)], shape, **window)
    total = net.node("Add", [operand(net, x) for operand in operands], shape)
    kernels = agrees(graph_of(net.model([net.node("MaxPool", [total], shape, **window)])))
    (position,) = (at for at, call in enumerate(kernels.calls) if "Add" in call.kernel.family)
    return kernels, position


def itself(net: Network, x: str) -> str:
    return x


def mean_of(net: Network, x: str) -> str:
    return net.node("ReduceMean", [x], (1, 1, 1, 1))


def turned(net: Network, x: str) -> str:
    return net.node("Transpose", [x], (1, 4, 6, 6), perm=[0, 1, 3, 2])


def mirrored(net: Network, x: str) -> str:
    return net.node("Gather", [x, net.constant(np.arange(6)[::-1])], (1, 4, 6, 6), axis=3)


def test_a_map_may_be_written_over_what_it_reads_at_the_same_point() -> None:
    kernels, position = added_between_pools(itself, mean_of)
    call = kernels.calls[position]
    ((out, into),) = call.in_place
    assert call.inputs[into] == kernels.calls[0].outputs[0]
    assert written_over(kernels, position) == ((kernels.buffers[call.outputs[out]].storage, call.inputs[into]),)


def test_in_place_is_refused_where_the_input_is_read_at_another_point_too() -> None:
    kernels, position = added_between_pools(itself, mirrored)
    call = kernels.calls[position]
    block = call.kernel.blocks[-1]  # type: ignore[union-attr]
    slot = call.kernel.inputs[call.inputs.index(kernels.calls[0].outputs[0])].name
    loads = [load.index for value in block.values for load in value.loads if load.slot == slot]
    assert [index == block.stores[0].index for index in loads] == [True, False]
    assert call.in_place == ()


def test_in_place_is_refused_where_a_view_of_the_input_is_read_elsewhere() -> None:
    kernels, position = added_between_pools(itself, turned)
    call = kernels.calls[position]
    one, other = (kernels.buffers[id] for id in call.inputs)
    assert one.storage == other.storage
    assert one.strides != other.strides
    assert written_over(kernels, position) == ()


def test_a_map_that_reads_a_value_and_a_view_of_it_is_no_epilogue_of_its_kernel() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 4, 6, 6)], (1, 4, 6, 6))
    turned = net.node("Transpose", [x], (1, 4, 6, 6), perm=[0, 1, 3, 2])
    more = net.node("Tanh", [turned], (1, 4, 6, 6))
    both = [net.node("Mul", [turned, x], (1, 4, 6, 6)), net.node("Add", [turned, more], (1, 4, 6, 6))]
    agrees(graph_of(net.model(both)))


def test_a_map_of_two_results_of_one_kernel_is_no_epilogue_of_it() -> None:
    net = Network()
    x = net.input(1, 4, 6, 6)
    y = net.node("LayerNormalization", [x, net.weight(6), net.weight(6)], (1, 4, 6, 6))
    net.nodes[-1].output.append("mean")
    net.shapes["mean"] = (1, 4, 6, 1)
    agrees(graph_of(net.model([net.node("Mul", [y, "mean"], (1, 4, 6, 6))])))


@pytest.mark.parametrize("chosen", ["then", "else"])
def test_a_map_is_no_epilogue_of_a_running_sum_which_reads_what_it_stored_before(chosen: str) -> None:
    net = Network()
    x = net.input(9)
    sums = net.node("CumSum", [x, net.constant(np.array(0, np.int64))], (9,))
    flags = net.node("Greater", [x, net.weight(1)], (9,))
    both = [sums, net.weight(9)] if chosen == "then" else [net.weight(9), sums]
    agrees(graph_of(net.model([net.node("Where", [flags, *both], (9,))])))


def test_an_elementwise_kernel_may_lie_over_what_dies_in_it() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 4, 6, 6)], (1, 4, 6, 6), axis=1)
    y = net.node("Softmax", [net.node("MaxPool", [x], (1, 4, 6, 6), kernel_shape=[1, 1])], (1, 4, 6, 6), axis=1)
    agrees(graph_of(net.model([net.node("Add", [y, x], (1, 4, 6, 6))])))


def test_maps_run_on_the_sums_of_a_product_of_integers_in_groups() -> None:
    s = Sketch(3, DType.F32)
    image = s.x(2, 12, 4, 5, dtype=DType.U8)
    weights = s.c(s.rng.integers(-128, 128, (18, 4, 3, 2)), DType.I8)
    sums = s("ConvInteger", image, weights, s.c(7, DType.U8), group=3, pads=(1, 0, 1, 1), kernel_shape=(3, 2))
    scaled = s("Mul", s("Cast", sums, to=1), s.c(2.0 ** -s.rng.integers(6, 9, (18, 1, 1))))
    graph = s.graph(s("QuantizeLinear", scaled, s.c(1.0), s.c(100, DType.U8)), scaled)
    kernels = fuse(graph).kernels
    assert len(kernels.calls) == 1
    given = s.rng.integers(0, 256, (2, 12, 4, 5)).astype(np.uint8)
    wanted = evaluate_graph(graph, {image: given}, OPERATORS, keep=list(graph.outputs))
    for id, got in zip(graph.outputs, stepped(kernels, [given]), strict=True):
        np.testing.assert_array_equal(got, wanted[id])


def test_a_map_that_would_be_computed_many_times_is_stored_and_the_refusal_says_why() -> None:
    net = Network()
    x = net.node("Sigmoid", [net.input(1, 4, 6, 6)], (1, 4, 6, 6))
    y = net.node("MaxPool", [x], (1, 4, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    fused = fuse(graph_of(net.model([y])))
    assert len(fused.kernels.calls) == 2
    assert any(
        (refusal.step, refusal.kernels) == ("inline", "Sigmoid -> MaxPool") and "times per element" in refusal.reason
        for refusal in fused.refusals
    ), fused.refusals


@pytest.mark.parametrize(("taps", "kernels"), [(3, 2), (1, 1)])
def test_bytes_that_a_window_reads_many_times_are_stored_and_the_refusal_says_why(taps: int, kernels: int) -> None:
    net = Network()
    scale, zero = net.constant(np.array(0.1, np.float32)), net.constant(np.array(7, np.uint8))
    x = net.node("QuantizeLinear", [net.input(1, 4, 9, 9), scale, zero], (1, 4, 9, 9))
    weights = net.constant(np.random.default_rng(0).integers(-9, 9, (8, 4, taps, taps)).astype(np.int8))
    sizes = (1, 8, (9 - taps) // 2 + 1, (9 - taps) // 2 + 1)
    sums = net.node("ConvInteger", [x, weights, zero], sizes, strides=[2, 2])
    y = net.node("Cast", [sums], sizes, to=1)
    fused = fuse(graph_of(net.model([y])))
    assert len(fused.kernels.calls) == kernels
    assert any("its bytes would be made" in refusal.reason for refusal in fused.refusals) == (kernels == 2)


def test_a_value_that_is_a_graph_output_is_stored_though_a_kernel_takes_it_in() -> None:
    net = Network()
    x = net.node("Relu", [net.input(1, 4, 6, 6)], (1, 4, 6, 6))
    kernels = agrees(graph_of(net.model([x, net.node("Neg", [x], (1, 4, 6, 6))])))
    assert {id for call in kernels.calls for id in call.outputs} == set(kernels.outputs)


def pointwise(net: Network, x: str, channels: int, side: int, **attrs: int | list[int]) -> str:
    return net.node("Conv", [x, net.weight(channels, net.shapes[x][1], 1, 1)], (1, channels, side, side), **attrs)


def families(kernels: KernelGraph) -> list[str]:
    return [call.kernel.family for call in kernels.calls]


def test_a_pad_that_a_slice_reads_is_taken_in_by_the_convolution_after_it() -> None:
    """The shifted path of a factorized reduction (NASNet)."""
    net = Network()
    x = net.node("Softmax", [net.input(1, 8, 7, 7)], (1, 8, 7, 7), axis=1)
    padded = net.node("Pad", [x, net.constant(np.array([0, 0, 0, 0, 0, 0, 1, 1]))], (1, 8, 8, 8))
    ends = [net.constant(np.array(end, np.int64)) for end in ([1, 1], [8, 8], [2, 3])]
    shifted = net.node("Slice", [padded, *ends], (1, 8, 7, 7))
    kernels = agrees(graph_of(net.model([pointwise(net, shifted, 4, 4, strides=[2, 2])])))
    assert families(kernels) == ["Softmax", "Pad+Slice+Conv"]


def test_a_pad_that_two_slices_read_whole_is_stored_once() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 8, 7, 7)], (1, 8, 7, 7), axis=1)
    padded = net.node("Pad", [x, net.constant(np.array([0, 0, 0, 0, 0, 0, 1, 1]))], (1, 8, 8, 8))
    cuts = []
    for first in (0, 1):
        ends = [net.constant(np.array(end, np.int64)) for end in ([first] * 2, [first + 7] * 2, [2, 3])]
        cuts.append(
            net.node("MaxPool", [net.node("Slice", [padded, *ends], (1, 8, 7, 7))], (1, 8, 7, 7), kernel_shape=[1, 1])
        )
    assert families(agrees(graph_of(net.model(cuts)))).count("Pad") == 1


def shuffled(net: Network, x: str, groups: int) -> str:
    """Channels dealt out over groups, as ShuffleNet writes it."""
    batch, channels, *image = net.shapes[x]
    apart = (batch, groups, channels // groups, *image)
    turned = (batch, channels // groups, groups, *image)
    y = net.node("Reshape", [x, net.constant(np.array(apart))], apart)
    y = net.node("Transpose", [y], turned, perm=[0, 2, 1, 3, 4])
    return net.node("Reshape", [y, net.constant(np.array(net.shapes[x]))], net.shapes[x])


@pytest.mark.parametrize("groups", [2, 3])
def test_a_shuffle_of_channels_is_read_by_a_pointwise_convolution_where_they_are(groups: int) -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 12, 5, 5)], (1, 12, 5, 5), axis=1)
    kernels = agrees(graph_of(net.model([pointwise(net, shuffled(net, x, groups), 8, 5)])))
    assert families(kernels) == ["Softmax", "Reshape+Conv"]
    product = kernels.calls[1].kernel
    assert isinstance(product, Kernel)
    assert len(product.blocks[0].reduction) > 1


def test_a_shuffle_that_a_split_reads_is_stored_only_where_it_goes_on() -> None:
    """A unit of ShuffleNet v2: one half is joined with what becomes of the other."""
    net = Network()
    x = net.node("Softmax", [net.input(1, 12, 5, 5)], (1, 12, 5, 5), axis=1)
    mixed = shuffled(net, x, 2)
    halves = []
    for first in (0, 6):
        ends = [net.constant(np.array([end], np.int64)) for end in (first, first + 6, 1)]
        halves.append(net.node("Slice", [mixed, *ends], (1, 6, 5, 5)))
    joined = net.node("Concat", [halves[0], pointwise(net, halves[1], 6, 5)], (1, 12, 5, 5), axis=1)
    kernels = agrees(graph_of(net.model([pointwise(net, joined, 4, 5)])))
    assert sorted(families(kernels)) == ["Conv", "Reshape+Slice", "Reshape+Slice+Conv", "Softmax"]


def test_a_product_does_not_gather_its_operand_element_by_element() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 12, 5, 5)], (1, 12, 5, 5), axis=1)
    wide = net.node("Conv", [shuffled(net, x, 2), net.weight(12, 1, 3, 3)], (1, 12, 5, 5), pads=[1] * 4, group=12)
    fused = fuse(graph_of(net.model([wide])))
    assert families(fused.kernels) == ["Softmax", "Reshape", "Conv"]
    assert any("element by element" in str(refusal) for refusal in fused.refusals)


def quantised_product(shape: tuple[int, ...], window: int, groups: int = 1) -> KernelGraph:
    """Kernels of a convolution as ONNX Runtime's dynamic quantisation writes it, of shuffled channels."""
    net = Network()
    x = shuffled(net, net.node("Softmax", [net.input(*shape)], shape, axis=1), groups)
    parts = [f"{x}_{part}" for part in ("bytes", "scale", "zero")]
    net.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [x], parts))
    w = net.constant(np.arange(8 * shape[1] * window**2).astype(np.int8).reshape(8, shape[1], window, window))
    y = net.node("ConvInteger", [parts[0], w, parts[2]], (1, 8, *shape[2:]), pads=[window // 2] * 4)
    real = net.node(
        "Mul", [net.node("Cast", [y], (1, 8, *shape[2:]), to=onnx.TensorProto.FLOAT), parts[1]], (1, 8, *shape[2:])
    )
    return agrees(graph_of(net.model([real])))


def test_bytes_of_a_range_are_made_where_a_product_reads_them_once() -> None:
    assert families(quantised_product((1, 12, 5, 5), 1)) == [
        "Softmax",
        "DynamicQuantizeLinear",
        "DynamicQuantizeLinear+ConvInteger+Cast+Mul",
    ]


def test_bytes_that_windows_read_several_times_are_stored() -> None:
    assert families(quantised_product((1, 12, 5, 5), 3)) == [
        "Softmax",
        "DynamicQuantizeLinear",
        "DynamicQuantizeLinear",
        "ConvInteger+Cast+Mul",
    ]


def test_range_and_product_read_shuffled_channels_in_even_steps() -> None:
    kernels = quantised_product((1, 12, 5, 5), 1, groups=2)
    for call in kernels.calls[1:]:
        assert isinstance(call.kernel, Kernel)
        loads = [load for block in call.kernel.blocks for value in block.values for load in value.loads]
        assert not any(isinstance(atom, FloorDiv | Mod) for load in loads for i in load.index for atom, _ in i.terms)


def test_a_residual_added_to_a_turned_product_runs_on_its_results() -> None:
    """The end of a block of ConvNeXt: a product over NHWC, added to NCHW."""
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(8, 8, 3, 3)], (1, 8, 6, 6), pads=[1] * 4)
    y = net.node("Transpose", [x], (1, 6, 6, 8), perm=[0, 2, 3, 1])
    y = net.node("MatMul", [y, net.weight(8, 8)], (1, 6, 6, 8))
    y = net.node("Transpose", [y], (1, 8, 6, 6), perm=[0, 3, 1, 2])
    y = net.node("Add", [x, y], (1, 8, 6, 6))
    kernels = agrees(graph_of(net.model([pointwise(net, y, 4, 6)])))
    assert families(kernels) == ["Conv", "MatMul+Transpose+Add", "Conv"]


def test_a_turned_product_that_is_stored_plain_is_turned_on_its_own() -> None:
    net = Network()
    y = net.node("MatMul", [net.input(1, 6, 6, 8), net.weight(8, 8)], (1, 6, 6, 8))
    y = net.node("Transpose", [y], (1, 8, 6, 6), perm=[0, 3, 1, 2])
    kernels = agrees(graph_of(net.model([net.node("Softmax", [net.node("Tanh", [y], (1, 8, 6, 6))], (1, 8, 6, 6))])))
    assert "MatMul+Transpose+Tanh" not in families(kernels)


def cell(*, also: str = "") -> onnx.ModelProto:
    """Two convolutions joined, with a Relu before each of the two convolutions that read both.

    `also`: what else reads them as they are.
    """
    net = Network()
    x = net.input(1, 8, 6, 6)
    parts = [pointwise(net, x, 8, 6), pointwise(net, x, 4, 6)]
    joined = net.node("Concat", parts, (1, 12, 6, 6), axis=1)
    positive = net.node("Relu", [joined], (1, 12, 6, 6))
    ends = [pointwise(net, positive, 4, 6), pointwise(net, positive, 2, 6)]
    if also:
        ends.append(net.node(also, [joined], (1, 12, 6, 6)))
    return net.model(ends)


def test_a_map_of_a_concat_runs_on_its_operands_where_they_are_made() -> None:
    kernels = agrees(graph_of(cell()))
    assert families(kernels) == ["Conv+Relu", "Conv+Relu", "Conv", "Conv"]


def test_a_map_of_a_concat_that_is_needed_as_it_is_too_is_a_second_result_of_those_kernels() -> None:
    kernels = agrees(graph_of(cell(also="Softmax")))
    assert families(kernels) == ["Conv+Relu", "Conv+Relu", "Conv", "Conv", "Softmax"]
    assert [len(call.outputs) for call in kernels.calls[:2]] == [2, 2]


def test_a_map_of_a_concat_with_the_networks_input_stays_a_kernel() -> None:
    net = Network()
    x = net.input(1, 8, 6, 6)
    positive = net.node(
        "Relu", [net.node("Concat", [pointwise(net, x, 4, 6), x], (1, 12, 6, 6), axis=1)], (1, 12, 6, 6)
    )
    kernels = agrees(graph_of(net.model([pointwise(net, positive, 4, 6), pointwise(net, positive, 2, 6)])))
    assert "Conv+Relu" not in families(kernels)


def test_what_rounds_a_concat_to_bytes_runs_where_its_operands_are_made() -> None:
    s = Sketch(1, DType.F32)
    image = s("QuantizeLinear", s.x(1, 8, 6, 6), s.c(2.0**-7), s.c(100, DType.U8))

    def part(filters: int, factor: float) -> int:
        weights = s.c(s.rng.integers(-128, 128, (filters, 8, 1, 1)), DType.I8)
        sums = s("ConvInteger", image, weights, s.c(100, DType.U8), kernel_shape=(1, 1))
        made = s("QuantizeLinear", s("Mul", s("Cast", sums, to=1), s.c(factor)), s.c(1.0), s.c(3, DType.U8))
        return s("DequantizeLinear", made, s.c(0.25), s.c(3, DType.U8))

    joined = s("Concat", part(4, 2.0**-8), part(6, 2.0**-9), axis=1)
    rounded = s("QuantizeLinear", joined, s.c(0.5), s.c(7, DType.U8))
    kernels = agrees(s.graph(s("MaxPool", rounded, kernel_shape=(2, 2))))
    assert families(kernels)[1:3] == ["ConvInteger+Cast+Mul+QuantizeLinear+DequantizeLinear+QuantizeLinear"] * 2
    assert len(kernels.calls) == 4
    assert not any(kernels.buffers[value].type.dtype is DType.F32 for call in kernels.calls for value in call.outputs)


@pytest.mark.parametrize(("window", "has_channels_last", "one"), [(3, True, True), (7, True, False), (3, False, False)])
def test_pools_read_the_bytes_of_which_they_combine_the_floats(window: int, has_channels_last: bool, one: bool) -> None:
    """Each byte is in 28 windows of 49 taps, and would be made a float as often."""
    s = Sketch(1, DType.F32)
    x = s.x(1, 4, 24, 24, dtype=DType.U8)
    if has_channels_last:
        weights = s.c(s.rng.integers(-128, 128, (4, 4, 1, 1)), DType.I8)
        sums = s("Cast", s("ConvInteger", x, weights, kernel_shape=(1, 1)), to=1)
        x = s("QuantizeLinear", sums, s.c(2.0**9), s.c(100, DType.U8))
    wide = s("DequantizeLinear", x, s.c(0.25), s.c(3, DType.U8))
    mean = s("AveragePool", wide, kernel_shape=(window, window))
    kernels = agrees(s.graph(s("QuantizeLinear", mean, s.c(0.5), s.c(7, DType.U8))))
    joined = "DequantizeLinear+AveragePool+QuantizeLinear"
    assert (joined in families(kernels)) is one
    assert ("AveragePool+QuantizeLinear" in families(kernels)) is not one


def test_two_maps_become_one_that_the_product_after_them_takes_in() -> None:
    """A layer of DenseNet: what normalises and clips reads a Concat, of which more is read elsewhere."""
    net = Network()
    x = net.node("Softmax", [net.input(1, 8, 6, 6)], (1, 8, 6, 6), axis=1)
    joined = net.node("Concat", [x, pointwise(net, x, 4, 6)], (1, 12, 6, 6), axis=1)
    y = net.node("Mul", [joined, net.weight(1, 12, 1, 1)], (1, 12, 6, 6))
    y = net.node("Relu", [net.node("Add", [y, net.weight(1, 12, 1, 1)], (1, 12, 6, 6))], (1, 12, 6, 6))
    whole = net.node("Concat", [joined, pointwise(net, y, 4, 6)], (1, 16, 6, 6), axis=1)
    kernels = agrees(graph_of(net.model([net.node("Softmax", [whole], (1, 16, 6, 6), axis=1)])))
    assert families(kernels) == ["Softmax", "Conv", "Mul+Add+Relu+Conv", "Softmax"]


def test_a_copy_that_the_kernel_before_it_can_store_is_written_into_the_concat_there() -> None:
    net = Network()
    x = net.input(2, 8)
    parts = []
    for _ in range(2):
        made = net.node("Tanh", [net.node("Mul", [x, net.weight(8)], (2, 8))], (2, 8))
        parts.append(net.node("Reshape", [made, net.constant(np.array([1, 2, 8]))], (1, 2, 8)))
    kernels = agrees(graph_of(net.model([net.node("Concat", parts, (2, 2, 8), axis=0)])))
    assert families(kernels) == ["Mul+Tanh+Reshape"] * 2


def test_an_output_that_is_another_shape_of_a_value_is_written_by_its_kernel() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 4, 6)], (1, 4, 6))
    flat = net.node("Reshape", [x, net.constant(np.array([4, 6]))], (4, 6))
    more = net.node("Softmax", [x], (1, 4, 6), axis=1)
    kernels = agrees(graph_of(net.model([flat, more])))
    assert families(kernels) == ["Softmax", "Softmax"]


def test_two_outputs_of_one_value_are_two_memories() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 4, 6)], (1, 4, 6))
    shapes = ((4, 6), (24,))
    flat = [net.node("Reshape", [x, net.constant(np.array(shape))], shape) for shape in shapes]
    kernels = agrees(graph_of(net.model(flat)))
    assert len({kernels.buffers[id].storage for id in kernels.outputs}) == 2


def test_an_output_of_another_order_is_stored_in_that_order() -> None:
    net = Network()
    x = net.node("Softmax", [net.input(1, 4, 6)], (1, 4, 6))
    kernels = agrees(graph_of(net.model([net.node("Transpose", [x], (1, 6, 4), perm=[0, 2, 1])])))
    assert families(kernels) == ["Softmax+Transpose"]
