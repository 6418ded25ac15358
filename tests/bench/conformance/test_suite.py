from __future__ import annotations

import numpy as np
import pytest

from bench.conformance.suite import MODELS, chosen, suite


def test_the_suite_is_read_in_full() -> None:
    groups = {case.group for case in suite().values()}
    assert {"Conv", "Attention", "TreeEnsemble", *MODELS} <= groups
    assert len(suite()) > 2000
    assert all(case.name == name for name, case in suite().items())


def test_a_function_body_counts_for_its_operator() -> None:
    assert suite()["test_attention_4d"].group == suite()["test_attention_4d_expanded"].group == "Attention"
    assert suite()["test_softplus_example_expanded_ver18"].group == "Softplus"


@pytest.mark.parametrize("name", ["test_relu", "test_expand_shape_model1", "test_operator_conv", "test_Conv1d"])
def test_a_case_has_its_data_from_memory_or_from_files(name: str) -> None:
    case = suite()[name]
    model = case.model()
    ((inputs, outputs), *_) = case.data_sets(model)
    assert [output.dtype.kind for output in outputs] == ["f"]
    assert all(isinstance(array, np.ndarray) for array in inputs)
    assert len(outputs) == len(model.graph.output)


def test_a_light_model_is_fed_ramps() -> None:
    case = suite()["test_squeezenet"]
    assert case.group == "real"
    ((inputs, outputs), *_) = case.data_sets(case.model())
    assert (inputs[0].shape, inputs[0].min(), len(outputs)) == ((1, 3, 224, 224), 0.0, 1)
    assert inputs[0].max() < 1


def test_cases_are_chosen_by_words() -> None:
    assert {case.name for case in chosen(["relu", "expanded_ver"])} <= set(suite())
    assert {case.group for case in chosen(["GRU"])} == {"GRU"}
    assert all("lstm" in case.name or case.group == "LSTM" for case in chosen(["lstm"]))
    assert not chosen(["lstm", "no such word"])
