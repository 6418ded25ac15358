"""What becomes of QDQ graphs: which products are computed from bytes, which are not, and what is folded then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from compiler.fuse import fuse
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.rewrite import rewrite
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning

F32, I8, U8 = DType.F32, DType.I8, DType.U8


def quantised(s: Sketch, x: int, scale: float = 0.25, zero: int = 3) -> int:
    """A tensor passed through bytes, as quantisation tools write it."""
    scales, zeros = s.c(scale, F32), s.c(zero, U8)
    return s("DequantizeLinear", s("QuantizeLinear", x, scales, zeros), scales, zeros)


def weights(s: Sketch, *shape: int, axis: int = 0, scale: int | None = None) -> int:
    array = s.c(s.rng.integers(-127, 128, shape), I8)
    return s("DequantizeLinear", array, s.c(np.full(shape[axis], 0.125), F32) if scale is None else scale, axis=axis)


def bias(s: Sketch, channels: int) -> int:
    """Of 32 bits, in units of the product of both scales."""
    scales = s.c(np.full(channels, 0.25 * 0.125), F32)
    return s("DequantizeLinear", s.c(s.rng.integers(-999, 999, channels), DType.I32), scales, axis=0)


def block(s: Sketch) -> Graph:
    """A residual block: two convolutions, an addition of what came in, and a classifier."""
    x = quantised(s, s.x(1, 8, 6, 6, dtype=F32))
    y = quantised(s, s("Relu", s("Conv", x, weights(s, 8, 8, 3, 3), bias(s, 8), pads=(1, 1, 1, 1))), zero=0)
    z = quantised(s, s("Conv", y, weights(s, 8, 8, 1, 1), bias(s, 8)), zero=128)
    total = quantised(s, s("Relu", s("Add", z, x)), zero=0)
    flat = quantised(s, s("Flatten", quantised(s, s("GlobalAveragePool", total), zero=0), axis=1), zero=0)
    return s.graph(s("Gemm", flat, weights(s, 4, 8), bias(s, 4), transB=1))


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def test_a_residual_block_is_computed_from_bytes_up_to_the_last_product() -> None:
    before = block(Sketch(1, F32))
    after = rewrite(before)
    found = ops(after.graph)
    assert (found["ConvInteger"], found["Conv"], found["Gemm"]) == (2, 0, 0)
    assert found["MatMulInteger"] == 1
    dequantised = {value for node in after.graph.nodes if node.op == "DequantizeLinear" for value in node.used}
    assert not dequantised & {value for value, array in after.graph.constants.items() if array.ndim > 1}
    assert_same_meaning(before, after, rtol=1e-6)


def test_what_follows_a_product_of_bytes_up_to_its_quantisation_is_one_kernel_with_it() -> None:
    fused = fuse(rewrite(block(Sketch(1, F32))).graph)
    products = [call for call in fused.kernels.calls if "ConvInteger" in call.kernel.family]
    assert len(products) == 2
    assert all("QuantizeLinear" in call.kernel.family for call in products)
    for call in products:
        stored = [fused.kernels.buffers[output].type.dtype for output in call.outputs]
        assert stored == [U8], call


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [(4,), (3, 2)])
def test_a_transposed_convolution_of_dequantised_bytes_is_computed_from_the_bytes(
    kernel: tuple[int, ...], groups: int
) -> None:
    """Alone in its kernel with what follows, scales of each channel where there are no groups."""
    s = Sketch(1, F32)
    x = quantised(s, s.x(1, 8, *(5, 6)[: len(kernel)], dtype=F32))
    each = weights(s, 8, 6 // groups, *kernel, axis=1, scale=None if groups == 1 else s.c(0.125))
    attrs = {"strides": (2,) * len(kernel), "pads": (1,) * len(kernel) * 2, "group": groups}
    before = s.graph(quantised(s, s("Relu", s("ConvTranspose", x, each, bias(s, 6), **attrs)), zero=0))
    after = rewrite(before)
    found = ops(after.graph)
    assert (found["ConvTransposeInteger"], found["ConvTranspose"], found["ConvInteger"]) == (1, 0, 0)
    assert_same_meaning(before, after, rtol=1e-6)
    families = [call.kernel.family for call in fuse(after.graph).kernels.calls]
    assert any("ConvTransposeInteger" in family and "QuantizeLinear" in family for family in families), families


def test_weights_that_only_are_stored_as_bytes_are_folded() -> None:
    s = Sketch(0, F32)
    after = rewrite(s.graph(s("Conv", s.x(1, 4, 5), weights(s, 6, 4, 3))))
    assert ops(after.graph) == {"Conv": 1}


def test_weights_of_a_refused_product_are_folded_too() -> None:
    s = Sketch(0, F32)
    x = s("DequantizeLinear", s.x(1, 4, 5, dtype=U8), s.c([0.5, 0.25, 0.125, 1.0], F32), axis=1)
    after = rewrite(s.graph(s("Conv", x, weights(s, 6, 4, 3))))
    assert ops(after.graph) == {"DequantizeLinear": 1, "Conv": 1}


def matmul(s: Sketch, a: int, b: int) -> Graph:
    return s.graph(s("MatMul", a, b))


REFUSED: dict[str, Callable[[Sketch], Graph]] = {
    "has a scale for each index of axis 1": lambda s: matmul(
        s, s("DequantizeLinear", s.x(2, 3, dtype=U8), s.c([0.5, 0.25, 1], F32), axis=1), weights(s, 3, 4, axis=1)
    ),
    "which is no channel": lambda s: matmul(s, quantised(s, s.x(2, 3)), weights(s, 3, 4, axis=0)),
    "is not constant": lambda s: matmul(s, quantised(s, s.x(2, 3)), weights(s, 3, 4, scale=s.x())),
    "quantised in blocks": lambda s: matmul(
        s,
        quantised(s, s.x(2, 4)),
        s("DequantizeLinear", s.c(np.ones((4, 2)), I8), s.c(np.ones((2, 2)), F32), axis=0, block_size=2),
    ),
    "do not fit into 32 bits": lambda s: matmul(
        s, quantised(s, s.x(2, 70_000)), s("DequantizeLinear", s.c(np.full((70_000, 2), 127), I8), s.c(0.5, F32))
    ),
    "is a vector": lambda s: matmul(s, quantised(s, s.x(2, 3)), weights(s, 3, scale=s.c(0.5, F32))),
    "share scales": lambda s: s.graph(
        s("ConvTranspose", quantised(s, s.x(1, 4, 5)), weights(s, 4, 3, 3, axis=1), group=2)
    ),
    "the bias": lambda s: s.graph(s("Conv", quantised(s, s.x(1, 4, 5)), weights(s, 6, 4, 3), s.x(6))),
    "other than float32": lambda s: matmul(
        s,
        s("DequantizeLinear", s.x(2, 3, dtype=U8), s.c(0.5, DType.F16)),
        s("DequantizeLinear", s.c(np.ones((3, 2)), I8), s.c(0.5, DType.F16)),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_product_that_bytes_cannot_give_is_refused_with_its_reason(reason: str) -> None:
    after = rewrite(REFUSED[reason](Sketch(0, F32)))
    reported = [*map(str, after.refusals), *map(str, after.log)]
    assert any(reason in line for line in reported), reported
    assert not {"ConvInteger", "ConvTransposeInteger", "MatMulInteger"} & ops(after.graph).keys()


def test_the_sums_of_constant_weights_decide_whether_they_fit() -> None:
    """70,000 products of any bytes do not fit, those with ones do."""
    s = Sketch(0, F32)
    small = s("DequantizeLinear", s.c(np.ones((70_000, 2)), I8), s.c(0.5, F32))
    assert ops(rewrite(matmul(s, quantised(s, s.x(1, 70_000)), small)).graph)["MatMulInteger"] == 1


def test_operands_that_are_both_data_are_multiplied_as_bytes() -> None:
    s = Sketch(0, F32)
    before = matmul(s, quantised(s, s.x(2, 3, 4)), quantised(s, s.x(2, 4, 5), zero=100))
    after = rewrite(before)
    assert ops(after.graph)["MatMulInteger"] == 1
    assert_same_meaning(before, after, rtol=1e-6)


@pytest.mark.parametrize(
    "attrs", [{"mode": "linear"}, {"coordinate_transformation_mode": "tf_crop_and_resize"}], ids=str
)
def test_a_resize_that_mixes_elements_or_gives_others_is_of_floats(attrs: dict[str, str]) -> None:
    s = Sketch(1, F32)
    x = s("DequantizeLinear", s.x(1, 2, 5, dtype=U8), s.c(0.25), s.c(3, U8))
    roi = {"roi": (0.0, 0.0, -0.5, 1.0, 1.0, 1.5), "extrapolation_value": 9.0}
    larger = s("Resize", x, None, None, None, **{"mode": "nearest", "scales": (1.0, 1.0, 2.0), **roi, **attrs})
    after = rewrite(s.graph(s("QuantizeLinear", larger, s.c(0.25), s.c(3, U8))))
    assert [node.op for node in after.graph.nodes] == ["DequantizeLinear", "Resize", "QuantizeLinear"]


def test_a_split_of_which_a_part_is_read_as_floats_stays_beside_the_bytes_of_the_other() -> None:
    s = Sketch(1, F32)
    x = s("DequantizeLinear", s.x(1, 6, 5, dtype=U8), s.c(0.25), s.c(3, U8))
    left, right = s.many("Split", x, None, outputs=2, axis=-2, split=(2, 4))
    before = s.graph(s("Exp", left), s("QuantizeLinear", right, s.c(0.25), s.c(3, U8)))
    after = rewrite(before)
    (part,) = (
        node for node in after.graph.nodes if node.op == "Slice" and after.graph.type(node.outputs[0]).dtype is U8
    )
    assert part.used[0] in after.graph.inputs
    assert "QuantizeLinear" not in ops(after.graph)
    assert_same_meaning(before, after)
