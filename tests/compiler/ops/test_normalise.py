from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops import softmax
from compiler.ops.normalise import OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Attrs, Inputs, Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS if operator not in softmax.OPERATORS}
DTYPES = pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 4e-3), (ml_dtypes.bfloat16, 4e-2), (np.float64, 1e-12)]
)


def images(least: int = 1) -> st.SearchStrategy[Shape]:
    """Shapes N x C x space, of which `least` extents are at least."""
    return st.lists(st.integers(least, 5), min_size=2, max_size=5).map(tuple)


def positive(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.abs(normal(seed, *shape)) + np.float32(0.1))


def sample(name: str, shape: Shape = (2, 4, 3, 5)) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Inputs and attributes for any of the operators."""
    x, channels = normal(1, *shape), shape[1]
    per_channel = [positive(2, channels), normal(3, channels)]
    return {
        "LayerNormalization": ([x, normal(2, shape[-1]), normal(3, shape[-1])], {}),
        "RMSNormalization": ([x, normal(2, shape[-1])], {}),
        "InstanceNormalization": ([x, *per_channel], {}),
        "GroupNormalization": ([x, *per_channel], {"num_groups": 2}),
        "BatchNormalization": ([x, *per_channel, normal(4, channels), positive(5, channels)], {}),
        "MeanVarianceNormalization": ([x], {}),
        "LpNormalization": ([x], {}),
        "LRN": ([x], {"size": 3}),
    }[name]


@st.composite
def layers(draw: st.DrawFn) -> tuple[Shape, int, tuple[Shape, ...]]:
    """A shape, an axis, and shapes of scale and bias that broadcast to the axes from there on."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    inner = shape[axis % len(shape) :]
    scales = tuple(tuple(draw(st.sampled_from((1, extent))) for extent in inner) for _ in range(2))
    return shape, axis, scales


@given(layers(), st.booleans(), st.integers(1, 3))
@settings(max_examples=60)
def test_LayerNormalization_agrees_with_its_reference_and_with_onnxruntime(
    problem: tuple[Shape, int, tuple[Shape, ...]], biased: bool, outputs: int
) -> None:
    shape, axis, (scale, bias) = problem
    inner = shape[axis % len(shape) :]
    full = [normal(2, *inner), normal(3, *inner)][: 1 + biased]
    compare(RECORDS["LayerNormalization"], [normal(1, *shape), *full], {"axis": axis, "epsilon": 1e-3}, outputs, 1e-4)
    narrow = [normal(2, *scale), normal(3, *bias) if biased else None]
    check(RECORDS["LayerNormalization"], [normal(1, *shape), *narrow], {"axis": axis, "epsilon": 1e-3}, outputs, 1e-4)


@given(layers())
@settings(max_examples=40)
def test_RMSNormalization_agrees_with_its_reference_and_with_onnxruntime(problem: Any) -> None:
    shape, axis, _ = problem
    inner = shape[axis % len(shape) :]
    compare(RECORDS["RMSNormalization"], [normal(1, *shape), normal(2, *inner)], {"axis": axis}, rtol=1e-4, opset=23)


def test_RMSNormalization_has_the_dtype_of_its_scale() -> None:
    arrays = [normal(1, 3, 8).astype(np.float16), normal(2, 8)]
    (result,) = check(RECORDS["RMSNormalization"], arrays, rtol=1e-4)
    assert result.dtype == np.float32


@given(images(), st.integers(0, 9))
@settings(max_examples=40)
def test_InstanceNormalization_agrees_with_its_reference_and_with_onnxruntime(shape: Shape, seed: int) -> None:
    arrays = [normal(seed, *shape), normal(1, shape[1]), normal(2, shape[1])]
    problem = (RECORDS["InstanceNormalization"], arrays, {"epsilon": 1e-2})
    if len(shape) > 2:
        compare(*problem, rtol=1e-4)
    else:
        check(*problem, rtol=1e-4)


@given(images(), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=40)
def test_GroupNormalization_agrees_with_its_reference_and_with_onnxruntime(shape: Shape, groups: int, per: int) -> None:
    channels = groups * per
    arrays = [normal(1, shape[0], channels, *shape[2:]), normal(2, channels), normal(3, channels)]
    attrs = {"num_groups": groups, "epsilon": 1e-2}
    compare(RECORDS["GroupNormalization"], arrays, attrs, rtol=1e-4, opset=21)


@given(images(0), st.integers(0, 9))
@settings(max_examples=40)
def test_BatchNormalization_agrees_with_its_reference_and_with_onnxruntime(shape: Shape, seed: int) -> None:
    c = shape[1]
    arrays = [normal(seed, *shape), normal(1, c), normal(2, c), normal(3, c), positive(4, c)]
    problem = (RECORDS["BatchNormalization"], arrays, {"epsilon": 1e-3})
    if 0 in shape:
        check(*problem, rtol=1e-4)
    else:
        compare(*problem, rtol=1e-4)


def test_BatchNormalization_takes_statistics_wider_than_its_input() -> None:
    half = [normal(seed, 4).astype(np.float16) for seed in (1, 2)]
    arrays = [normal(0, 2, 4, 3).astype(np.float16), *half, normal(3, 4), positive(4, 4)]
    check(RECORDS["BatchNormalization"], arrays, rtol=4e-3)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple), st.data())
@settings(max_examples=40)
def test_MeanVarianceNormalization_agrees_with_its_reference_and_with_onnxruntime(
    shape: Shape, data: st.DataObject
) -> None:
    whole = st.integers(0, len(shape) - 1)
    axes = tuple(data.draw(st.lists(whole, unique=True, min_size=1)))
    signed = tuple(axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes)
    check(RECORDS["MeanVarianceNormalization"], [normal(1, *shape)], {"axes": signed}, rtol=1e-4)
    compare(RECORDS["MeanVarianceNormalization"], [normal(1, *shape)], {"axes": axes}, rtol=1e-3)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), st.integers(1, 2), st.data())
@settings(max_examples=40)
def test_LpNormalization_agrees_with_its_reference_and_with_onnxruntime(
    shape: Shape, p: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    problem = (RECORDS["LpNormalization"], [normal(1, *shape)], {"axis": axis, "p": p})
    if 0 in shape:
        check(*problem)
    else:
        compare(*problem)


@pytest.mark.parametrize("p", [1, 2])
def test_LpNormalization_leaves_a_line_of_zeros_alone(p: int) -> None:
    compare(RECORDS["LpNormalization"], [np.array([[0, -0.0, 0], [0, 3, -4]], np.float32)], {"axis": 1, "p": p})


@given(images().filter(lambda shape: len(shape) == 4), st.integers(1, 4))
@settings(max_examples=30)
def test_LRN_agrees_with_its_reference_and_with_onnxruntime(shape: Shape, half: int) -> None:
    """ONNX Runtime takes odd sizes and rank 4 alone."""
    attrs = {"size": 2 * half - 1, "alpha": 0.3, "beta": 0.6, "bias": 1.5}
    compare(RECORDS["LRN"], [normal(1, *shape)], attrs)


@given(images(0), st.integers(1, 8))
@settings(max_examples=30)
def test_LRN_of_any_rank_and_size_agrees_with_its_reference(shape: Shape, size: int) -> None:
    check(RECORDS["LRN"], [normal(1, *shape)], {"size": size, "alpha": 0.3})


@pytest.mark.parametrize("name", sorted(RECORDS))
@DTYPES
def test_every_float_type_is_computed_to_its_own_precision(name: str, dtype: Any, rtol: float) -> None:
    arrays, attrs = sample(name)
    (result,) = check(RECORDS[name], [array.astype(dtype) for array in arrays], attrs, rtol=rtol)
    assert result.dtype == dtype


@pytest.mark.parametrize("name", sorted(RECORDS))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_edge_values_give_what_onnxruntime_gives(name: str, value: float) -> None:
    arrays, attrs = sample(name)
    arrays[0][0, 0, 0, 0] = value
    if name == "LRN" and not np.isfinite(value):  # ONNX Runtime keeps a running sum, which never forgets such a value
        check(RECORDS[name], arrays, attrs)
    else:
        compare(RECORDS[name], arrays, attrs, rtol=1e-4, opset=23 if name == "RMSNormalization" else 21)


@pytest.mark.parametrize(
    "name", ["LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"]
)
def test_a_far_mean_costs_no_more_precision_than_it_must(name: str) -> None:
    """The variance is summed around the mean: with E[x^2] - E[x]^2 in f32 nothing of it would be left."""
    arrays, attrs = sample(name)
    arrays[0] = (arrays[0] + 4096).astype(np.float32)
    check(RECORDS[name], arrays, attrs, rtol=2e-3)


def test_statistics_pass_over_the_group_and_nothing_else() -> None:
    arrays, attrs = sample("GroupNormalization")
    node, _, types = prepare(RECORDS["GroupNormalization"], arrays, attrs, 1)
    kernel = RECORDS["GroupNormalization"].define(node, types, (types[0],))  # type: ignore[arg-type]
    assert isinstance(kernel, Kernel)
    assert [(axis.name, axis.extent) for axis in kernel.shared] == [("n", 2), ("g", 2)]
    assert [block.monoid for block in kernel.blocks] == ["sum", "sum", "", ""]


def refused(name: str, arrays: Inputs, attrs: Attrs, outputs: int = 1) -> str:
    node, _, types = prepare(RECORDS[name], arrays, attrs, outputs)
    with pytest.raises(Unsupported) as refusal:
        RECORDS[name].infer(node, types)
    assert refusal.value.fix
    return refusal.value.reason


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    x, c = normal(1, 2, 4, 3), normal(2, 4)
    assert "does not broadcast" in refused("LayerNormalization", [x, c], {})
    assert "does not broadcast" in refused("RMSNormalization", [x, normal(1, 1, 1, 1, 3)], {})
    assert "stash_type" in refused("LayerNormalization", [x, normal(2, 3)], {"stash_type": 7})
    assert "axis is 3" in refused("LayerNormalization", [x, c], {"axis": 3})
    assert "has shape [3], not [4]" in refused("InstanceNormalization", [x, c, normal(1, 3)], {})
    assert "do not divide" in refused("GroupNormalization", [x, c, c], {"num_groups": 3})
    assert "1 or more" in refused("GroupNormalization", [x, c, c], {"num_groups": 0})
    assert "rank 1" in refused("BatchNormalization", [c, c, c, c, c], {})
    assert "training" in refused("BatchNormalization", [x, c, c, c, c], {"training_mode": 1})
    assert "training" in refused("BatchNormalization", [x, c, c, c, c], {}, outputs=3)
    assert "axes" in refused("MeanVarianceNormalization", [x], {})
    assert "p is 3" in refused("LpNormalization", [x], {"p": 3})
    assert "rank 1" in refused("LRN", [c], {"size": 3})
    assert "1 or more" in refused("LRN", [x], {"size": 0})


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed_or_belongs_to_training(case: Case) -> None:
    refusal = run(case, RECORDS[case.op])
    assert bool(refusal) == ("training" in case.name), refusal
