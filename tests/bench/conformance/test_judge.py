from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from bench.conformance import judge as judging
from bench.conformance.judge import Verdict, is_rounding, judge, open_shapes
from bench.conformance.suite import Case, suite

SAMPLE = {
    "test_relu": "passed",
    "test_conv_with_strides_padding": "passed",
    "test_softmax_axis_1_expanded": "passed",
    "test_lstm_defaults": "passed",
    "test_dft": "passed",
    "test_reshape_extended_dims": "passed",
    "test_reduce_sum_keepdims_example": "passed",
    "test_stft": "bound",
    "test_col2im_pads": "bound",
    "test_roialign_aligned_true": "passed",
    "test_ai_onnx_ml_tree_ensemble_single_tree": "passed",
    "test_ai_onnx_ml_tree_ensemble_set_membership": "passed",
    "test_celu_bfloat16": "passed",
    "test_bitshift_right_int8_negative_shift": "passed",
    "test_operator_conv": "passed",
    "test_image_decoder_decode_pnm_rgb": "refused",
    "test_string_split_maxsplit": "passed",
    "test_string_split_empty_tensor": "passed",
    "test_strnorm_model_monday_casesensintive_lower": "passed",
    "test_regex_full_match_empty": "passed",
    "test_sequence_map_add_1_sequence_1_tensor": "passed",
    "test_identity_opt": "passed",
    "test_optional_has_element_empty_optional_input": "passed",
    "test_bitcast_float32_to_int32": "passed",
    "test_flexattention_score_mod": "passed",
    "test_nonzero_example": "passed",
}
"""A small part of the suite with what becomes of it: each status, kind and way to an operator."""


@pytest.mark.parametrize(("name", "status"), SAMPLE.items())
def test_what_becomes_of_a_case(name: str, status: str) -> None:
    verdict = judge(suite()[name])
    assert (verdict.case, verdict.status) == (name, status), verdict.reason
    assert bool(verdict.reason) == (status != "passed")
    assert verdict.seconds > 0


def test_a_bound_case_says_what_had_to_be_known() -> None:
    assert "must be known when compiling" in judge(suite()["test_col2im_pads"]).reason


def spoiled(name: str, **changes: Any) -> Case:
    """A case of which some fields of the suite's are others."""
    case = suite()[name]
    return replace(case, source=replace(case.source, **changes))


def test_a_result_outside_the_tolerance_is_wrong() -> None:
    source = suite()["test_relu"].source
    ((inputs, (right,)),) = source.data_sets
    near, far = right * (1 + 0.5 * source.rtol), right * (1 + 2 * source.rtol)
    assert judge(spoiled("test_relu", data_sets=[(inputs, [near])])).status == "passed"
    verdict = judge(spoiled("test_relu", data_sets=[(inputs, [far])]))
    assert verdict.status == "wrong"
    assert "rtol" in verdict.reason
    assert judge(spoiled("test_relu", data_sets=[(inputs, [right.astype(np.float64)])])).status == "wrong"


def test_what_goes_wrong_inside_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(judging, "compile_model", broken)
    verdict = judge(suite()["test_relu"])
    assert verdict == Verdict("test_relu", "Relu", "crashed", "ZeroDivisionError: inside", verdict.seconds)


def test_only_shapes_that_the_model_leaves_open_are_given() -> None:
    inputs = [
        helper.make_tensor_value_info("fixed", onnx.TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("named", onnx.TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("none", onnx.TensorProto.FLOAT, None),
    ]
    model = helper.make_model(helper.make_graph([], "g", inputs, []))
    feeds = {name: np.zeros((2, 3), np.float32) for name in ("fixed", "named", "none")}
    assert open_shapes(model, feeds) == {"named": [2, 3], "none": [2, 3]}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_two_units_in_the_last_place_of_the_largest_number_are_rounding(dtype: type) -> None:
    expected: np.ndarray = np.array([1.0, 1e-4, 0.0], dtype)
    unit = np.finfo(dtype).eps
    near, far = (expected + np.array([0, 0, count * unit]).astype(dtype) for count in (2, 3))
    assert is_rounding(expected, near)
    assert not is_rounding(expected, far)
    assert not is_rounding(expected, near.astype(np.float64))
    assert not is_rounding(expected, np.array([1, np.nan, 0], dtype))
    assert not is_rounding(np.array([1]), np.array([2]))
