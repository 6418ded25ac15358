"""Every trait held against the operators' references, definitions and schemas.

A wrong trait fails, and a missing one as well, except of CHANNELS, LINEAR, POOL and RESAMPLE. The nodes are those
of onnx's conformance suite, which has each operator with all its attributes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.defs
import pytest

from compiler.ir.expr import Apply
from compiler.ir.kernel import Block, Kernel
from compiler.ops import MODEL_OPERATORS as OPERATORS
from compiler.ops import having as having_of_all
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait
from tests.compiler.ops.node_cases import Case, cases
from tests.compiler.ops.single import prepare

Arrays = tuple[np.ndarray | None, ...]
Results = tuple[np.ndarray, ...]

NEVER_TYPED = {"NonZero", "NonMaxSuppression", "Unique"}
"""The size of their results depends on data: nothing asks for their traits."""
STEP = 2.0
"""A power of two, by which multiplying rounds nothing."""


def having(trait: Trait) -> frozenset[str]:
    """Of the operators of ai.onnx, which have samples."""
    return having_of_all(trait) & set(OPERATORS)


def schema(name: str) -> Any:
    return onnx.defs.get_schema(name)


@functools.cache
def samples(name: str) -> tuple[Case, ...]:
    """Cases of an operator that our records type."""
    found = [case for case in (*cases(), *_more()) if case.op == name]
    return tuple(case for case in found if _is_typed(case))


def _more() -> Iterator[Case]:
    """What the suite lacks."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    yield Case("global_lp_pool", "GlobalLpPool", 2, {"p": 2}, (x,), (None,), 1e-5)


def _is_typed(case: Case) -> bool:
    node, _, types = prepare(OPERATORS[case.op], case.inputs, case.attrs, len(case.outputs))
    try:
        OPERATORS[case.op].infer(node, types)
    except Unsupported:
        return False
    return True


def reference(case: Case, inputs: Arrays | None = None) -> Results:
    """The outputs of a case by our reference, with other inputs where some are given."""
    node, arrays, _ = prepare(
        OPERATORS[case.op], case.inputs if inputs is None else inputs, case.attrs, len(case.outputs)
    )
    with np.errstate(all="ignore"):
        return OPERATORS[case.op].reference(node, arrays)


def first(case: Case) -> np.ndarray:
    array = case.inputs[0]
    assert array is not None
    return array


def with_first(case: Case, array: np.ndarray) -> Results:
    return reference(case, (array, *case.inputs[1:]))


def wide(case: Case) -> Case:
    """A case with its floating-point inputs in float64."""
    return replace(
        case, inputs=tuple(a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in case.inputs)
    )


def all_of(trait: Trait) -> pytest.MarkDecorator:
    """One test for each operator with a trait."""
    names = sorted(having(trait) - NEVER_TYPED)
    assert names, f"no operator has {trait}"
    return pytest.mark.parametrize("name", names)


def behaving(names: Iterable[str], holds: Callable[[Case], bool | None]) -> set[str]:
    """Operators that have samples to which the question applies (None where it does not), all with the answer yes."""
    found = set()
    for name in names:
        answers = [answer for case in samples(name) if (answer := holds(case)) is not None]
        if answers and all(answers):
            found.add(name)
    return found


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit by bit, but for which NaN a NaN is."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    signs = np.signbit(a) == np.signbit(b)
    return bool(((signs & (a == b)) | (np.isnan(a) & np.isnan(b))).all())


def near(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))


def has_float(case: Case) -> bool:
    return case.inputs[0] is not None and case.inputs[0].dtype.kind == "f"


# All operators


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - NEVER_TYPED))
def test_an_operator_is_a_pure_function(name: str) -> None:
    assert schema(name).node_determinism != onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    assert samples(name)
    for case in samples(name):
        before = [None if array is None else array.copy() for array in case.inputs]
        once, again = reference(case), reference(case)
        assert all(map(same, once, again)), case.name
        for was, array in zip(before, case.inputs, strict=True):
            assert (was is None and array is None) or (was is not None and array is not None and same(was, array))


def test_every_trait_is_that_of_an_operator() -> None:
    assert not [trait for trait in Trait if not having(trait)]


def test_traits_that_imply_others() -> None:
    assert having(Trait.UNARY) < having(Trait.ELEMENTWISE)
    assert having(Trait.LOGICAL) < having(Trait.ELEMENTWISE)
    assert having(Trait.RESHAPE) < having(Trait.VIEW) < having(Trait.MOVES)
    assert having(Trait.LINEAR) < having(Trait.CONTRACTION)
    assert having(Trait.STEPWISE) < having(Trait.REDUCTION)
    assert having(Trait.POOL) < having(Trait.CHANNELS)


def test_several_traits_are_asked_for_together() -> None:
    both = having(Trait.POOL | Trait.WINDOW)
    assert both == having(Trait.POOL) & having(Trait.WINDOW)
    assert both == {"AveragePool", "LpPool", "MaxPool"}


# Maps


def _is_pointwise(case: Case) -> bool | None:
    """Whether shuffling the places of all operands, brought to the result's shape, shuffles the result."""
    arrays = [array for array in case.inputs if array is not None]
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return False
    (result, *others) = reference(case)
    if others or result.shape != shape:
        return False
    order = np.random.default_rng(1).permutation(math.prod(shape))

    def shuffled(array: np.ndarray) -> np.ndarray:
        return np.broadcast_to(array, shape).reshape(-1)[order].reshape(shape)

    given = tuple(
        array if array is None or (array.size == 1 and at) else shuffled(array) for at, array in enumerate(case.inputs)
    )
    try:
        return same(reference(case, given)[0], shuffled(result))
    except (ValueError, IndexError):
        return False


BY_CHANCE = {
    "CastLike": "its second operand tells a type, and is not broadcast",
    "DequantizeLinear": "a scale for each index of an axis is not broadcast",
    "QLinearConv": "the suite's filter has one element",
    "QuantizeLinear": "a scale for each index of an axis is not broadcast",
}
"""Operators whose cases compute element by element, though others of their nodes would not."""


def test_maps_are_the_operators_that_compute_element_by_element() -> None:
    assert behaving(set(OPERATORS) - NEVER_TYPED - set(BY_CHANCE), _is_pointwise) == having(Trait.ELEMENTWISE)


def test_unary_maps_have_one_operand_that_is_no_single_number() -> None:
    for name in having(Trait.ELEMENTWISE):
        if schema(name).max_input == 1:
            assert name in having(Trait.UNARY), name
    assert {name for name in having(Trait.UNARY) if schema(name).max_input > 1} == {"Clip"}
    x, bounds = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    node, _, types = prepare(OPERATORS["Clip"], (x, bounds, bounds), {}, 1)
    with pytest.raises(Unsupported, match="no scalar"):
        OPERATORS["Clip"].infer(node, types)


def _edges(dtype: np.dtype) -> np.ndarray:
    """Values of a dtype on which functions that nearly commute do not."""
    if dtype.kind == "f":
        return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 6e-8, 6e4], dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    return np.array([0, 1, 2, 3, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)


def _commutes(case: Case) -> bool | None:
    x, y = first(case), case.inputs[1]
    assert y is not None
    if x.dtype != y.dtype:
        return False
    values = _edges(x.dtype)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    return same(reference(case, (a, b))[0], reference(case, (b, a))[0])


def test_commutative_operators_are_those_of_two_operands_that_may_change_places() -> None:
    of_two = {name for name in having(Trait.ELEMENTWISE) if schema(name).min_input == schema(name).max_input == 2}
    assert behaving(of_two, _commutes) == having(Trait.COMMUTATIVE)


def test_logical_maps_are_those_whose_schema_has_a_boolean() -> None:
    def has_boolean(name: str) -> bool:
        return any(set(formal.types) == {"tensor(bool)"} for formal in (*schema(name).inputs, *schema(name).outputs))

    assert {name for name in having(Trait.ELEMENTWISE) if has_boolean(name)} == having(Trait.LOGICAL)


def _scales(case: Case, *factors: float) -> bool | None:
    """Whether f(s x) = s f(x) for these s."""
    if not has_float(case) or len(case.outputs) > 1:
        return None
    case = wide(case)
    x, once = first(case), reference(case)[0]
    return once.dtype.kind == "f" and all(near(with_first(case, s * x)[0], s * once) for s in factors)


def test_positive_homogeneous_operators_scale_with_their_input_where_the_factor_is_positive() -> None:
    typed = set(OPERATORS) - NEVER_TYPED
    scaling = behaving(typed, lambda case: _scales(case, STEP, 1 / STEP))
    odd = behaving(typed, lambda case: _scales(case, -1))
    assert scaling - odd == having(Trait.POSITIVE_HOMOGENEOUS)


def _is_not_negative(case: Case) -> bool | None:
    if not has_float(case):
        return None
    x = np.random.default_rng(2).normal(scale=4, size=first(case).shape).astype(first(case).dtype)
    results = with_first(case, x)
    return None if results[0].dtype.kind != "f" else not (results[0] < 0).any()


NOT_BELOW_BY_CHANCE = {
    "GlobalMaxPool": "the greatest of many numbers",
    "OneHot": "its third operand holds the values",
    "ReduceMin": "its real case has no elements",
    "ThresholdedRelu": "its attribute may be negative",
}


def test_operators_of_which_no_result_is_below_zero() -> None:
    found = behaving(set(OPERATORS) - NEVER_TYPED - set(NOT_BELOW_BY_CHANCE), _is_not_negative)
    assert found == having(Trait.NOT_NEGATIVE)


# Moving elements


def _numbered(case: Case, joining: bool) -> tuple[Arrays, int]:
    """Inputs whose elements say where they come from: the first one's, or those of all inputs of a joining operator."""
    inputs, start = list(case.inputs), 0
    for at, array in enumerate(inputs):
        if array is not None and (at == 0 or joining):
            inputs[at] = np.arange(start, start + array.size, dtype=np.float64).reshape(array.shape)
            start += array.size
    return tuple(inputs), start


def _positions(case: Case) -> list[np.ndarray] | None:
    """For each result, where its elements come from; None where they do not just move."""
    inputs, count = _numbered(case, case.op == "Concat")
    table = np.random.default_rng(3).normal(size=count)  # a map of elements that keeps neither order nor sign
    mapped = tuple(
        table[array.astype(np.int64)] if array is not None and (at == 0 or case.op == "Concat") else array
        for at, array in enumerate(inputs)
    )
    try:
        plain, moved = reference(case, inputs), reference(case, mapped)
    except (ValueError, IndexError, TypeError):
        return None
    found = []
    for before, after in zip(plain, moved, strict=True):
        if before.dtype != np.float64 or not ((before >= 0) & (before < count) & (before == np.floor(before))).all():
            return None
        at = before.astype(np.int64)
        if not same(table[at], after):
            return None
        found.append(at)
    return found


def _moves(case: Case) -> bool | None:
    return None if first(case).size < 2 else _positions(case) is not None


CONVERTING = {"Cast", "CastLike"}
"""In float64 they convert to no other float."""


def test_moving_operators_are_those_before_which_any_map_may_be_done() -> None:
    assert behaving(set(OPERATORS) - NEVER_TYPED - CONVERTING, _moves) == having(Trait.MOVES)


def _is_strided(places: np.ndarray) -> bool:
    """Whether an array of positions is what numpy's strides can say."""
    if not places.size:
        return True
    steps = [int(places.take(1, axis).flat[0] - places.flat[0]) if n > 1 else 0 for axis, n in enumerate(places.shape)]
    index = np.indices(places.shape)
    expected = int(places.flat[0]) + sum(step * at for step, at in zip(steps, index, strict=True))
    return bool((places == expected).all())


def _is_view(case: Case) -> bool | None:
    places = _positions(case)
    if places is None:
        return False
    if case.op != "Concat":
        return all(map(_is_strided, places))
    came_from, start = places[0].reshape(-1), 0
    for array in case.inputs:
        assert array is not None
        inside = np.flatnonzero((came_from >= start) & (came_from < start + array.size))
        if not _is_strided(inside.reshape(array.shape)):
            return False
        start += array.size
    return True


BY_DATA = {"Compress", "GatherND"}
"""What these take lies at regular distances in the suite's cases."""


def test_views_are_the_moving_operators_whose_results_strides_can_say() -> None:
    assert behaving(having(Trait.MOVES) - BY_DATA, _is_view) == having(Trait.VIEW)


def test_reshapes_are_the_views_that_keep_the_order_of_elements() -> None:
    def keeps_order(case: Case) -> bool:
        places = _positions(case)
        assert places is not None
        return len(places) == 1 and same(places[0].reshape(-1), np.arange(first(case).size))

    assert behaving(having(Trait.VIEW), keeps_order) == having(Trait.RESHAPE) | {"Identity"}


# Sums


def _blocks(case: Case) -> tuple[Kernel, tuple[Block, ...]] | None:
    """The definition of a case as loop nests; None for a routine."""
    node, _, types = prepare(OPERATORS[case.op], case.inputs, case.attrs, len(case.outputs))
    operator = OPERATORS[case.op]
    kernel = operator.define(node, types, operator.infer(node, types))
    return (kernel, kernel.blocks) if isinstance(kernel, Kernel) else None


def _products(case: Case) -> int | None:
    """How many products of two inputs' elements its sums have; None for a routine."""
    found = _blocks(case)
    if found is None:
        return None
    kernel, blocks = found
    inputs = {slot.name for slot in kernel.inputs}
    total = 0
    for block in blocks:
        multiplied = [
            {load.slot for load in part.loads} & inputs
            for value in block.values
            for part in value.walk()
            if isinstance(part, Apply) and part.function == "mul"
        ]
        if block.monoid == "sum" and any(len(slots) > 1 for slots in multiplied):
            total += math.prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
    return total


def test_contractions_are_the_operators_whose_definition_sums_products_of_two_inputs() -> None:
    found = (
        {name for name in set(OPERATORS) - NEVER_TYPED if any(_products(case) for case in samples(name))}
        - having(Trait.RECURRENT)
        - having(Trait.RESAMPLE)
    )
    assert found == having(Trait.CONTRACTION)


@all_of(Trait.CONTRACTION)
def test_the_work_of_a_contraction_is_at_most_the_product_of_its_inputs_sizes(name: str) -> None:
    counted = [(case, count) for case in samples(name) if (count := _products(case))]
    assert counted
    for case, count in counted:
        if name not in having(Trait.WINDOW):
            assert count <= math.prod(array.size for array in case.inputs if array is not None), case.name


@all_of(Trait.LINEAR)
def test_a_LINEAR_operator_is_linear_in_data_and_weights_and_adds_a_bias(name: str) -> None:
    found = 0
    for case in map(wide, samples(name)):
        x, w, *rest = case.inputs
        if x is None or w is None or x.dtype.kind != "f":
            continue
        random = np.random.default_rng(4)
        dx, dw = random.normal(size=x.shape), random.normal(size=w.shape)
        product, more_data, more_weights = (reference(case, pair)[0] for pair in ((x, w), (dx, w), (x, dw)))
        assert near(reference(case, (x - 3 * dx, w))[0], product - 3 * more_data)
        assert near(reference(case, (x, w - 3 * dw))[0], product - 3 * more_weights)
        found += 1
        if rest and rest[0] is not None:
            bias = reference(case, (np.zeros_like(x), w, rest[0]))[0]
            assert near(reference(case, (x, w, rest[0]))[0], product + bias)
    assert found


def test_windows_are_given_by_attributes() -> None:
    assert {name for name in OPERATORS if {"kernel_shape", "size"} & set(schema(name).attributes)} == having(
        Trait.WINDOW
    )


@all_of(Trait.POOL)
def test_a_pool_combines_positions_of_one_channel(name: str) -> None:
    assert samples(name)
    for case in samples(name):
        x, result = first(case), reference(case)[0]
        assert near(with_first(case, np.flip(x, 1))[0].astype(np.float64), np.flip(result, 1).astype(np.float64)), (
            case.name
        )
        found = _blocks(case)
        assert found
        assert {block.monoid for block in found[1] if block.reduction} <= {"sum", "max", "argmax_first"}, case.name
        if name not in having(Trait.WINDOW):
            mixed = np.random.default_rng(5).permutation(x.reshape(*x.shape[:2], -1), axis=2).reshape(x.shape)
            assert np.allclose(with_first(case, mixed)[0], result, rtol=1e-5)


def test_reductions_are_the_operators_that_combine_the_elements_along_axes() -> None:
    def takes_axes(name: str) -> bool:
        return (1, "axes") in OPERATORS[name].parameters and "keepdims" in schema(name).attributes

    assert {name for name in OPERATORS if takes_axes(name)} == having(Trait.REDUCTION)
    for name in having(Trait.REDUCTION):
        for case in samples(name):
            flipped = with_first(case, np.flip(first(case)))
            (one,) = reference(
                replace(case, attrs={**case.attrs, "noop_with_empty_axes": 0}, inputs=(first(case), None))
            )
            (other,) = reference(
                replace(case, attrs={**case.attrs, "noop_with_empty_axes": 0}, inputs=(np.flip(first(case)), None))
            )
            assert np.allclose(one, other, rtol=1e-5), case.name
            assert flipped[0].size == reference(case)[0].size


def _is_stepwise(case: Case) -> bool | None:
    if not has_float(case):
        return None
    x = np.random.default_rng(6).normal(size=(2, 3, 4))
    record = replace(case, attrs={"keepdims": 1, "noop_with_empty_axes": 0})

    def over(array: np.ndarray, *axes: int) -> np.ndarray:
        return reference(record, (array, np.array(axes, np.int64)))[0]

    return near(over(over(x, 0), 2), over(x, 0, 2)) and near(over(x[:1], 0), x[:1])


def test_stepwise_reductions_are_those_done_one_axis_after_another() -> None:
    assert behaving(having(Trait.REDUCTION), _is_stepwise) == having(Trait.STEPWISE)


@all_of(Trait.RESAMPLE)
def test_a_resampling_operator_interpolates_between_elements(name: str) -> None:
    between = 0
    for case in map(wide, samples(name)):
        x, result = first(case), reference(case)[0]
        if (
            case.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize"
        ):  # it fills what lies outside with a number
            assert near(with_first(case, STEP * x)[0], STEP * result), case.name
        between += not np.isin(result, x).all()
    assert between


def test_recurrent_operators_have_a_hidden_state() -> None:
    assert {name for name in OPERATORS if "hidden_size" in schema(name).attributes} == having(Trait.RECURRENT)


# Axes and encodings


@all_of(Trait.CHANNELS)
def test_samples_of_a_CHANNELS_operator_are_computed_each_for_itself(name: str) -> None:
    found = 0
    for case in samples(name):
        x, result = first(case), reference(case)[0]
        assert result.ndim == x.ndim
        if case.op == "Resize" and (case.inputs[3:] or case.attrs.get("axes")):
            continue  # sizes and axes that count samples as well
        others = tuple(
            np.concatenate([array, array]) if array is not None and case.op == "GridSample" else array
            for array in case.inputs[1:]
        )
        both = reference(case, (np.concatenate([x, np.flip(x, -1)]), *others))[0]
        assert np.allclose(both[: len(result)], result, rtol=1e-5, atol=1e-6), case.name
        found += 1
    assert found


def test_quantised_operators_are_those_with_a_zero_point() -> None:
    def has_zero_point(name: str) -> bool:
        return any("zero_point" in formal.name for formal in (*schema(name).inputs, *schema(name).outputs))

    assert {name for name in OPERATORS if has_zero_point(name)} == having(Trait.QUANTISED)


def test_indices_are_the_inputs_that_the_schema_calls_so() -> None:
    for name, operator in OPERATORS.items():
        words = ("indices", "write_indices", "batch_indices")
        named = tuple(at for at, formal in enumerate(schema(name).inputs) if formal.name in words)
        assert operator.indices == named, name
