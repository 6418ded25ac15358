from __future__ import annotations

from typing import Any

import pytest

from compiler.contract import CompileOptions
from compiler.errors import TilewrightError
from compiler.frontend.binding.bind import bind
from compiler.frontend.binding.correct import correct, open_inputs
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Input
from compiler.ir.tensor import DType

Shape = tuple[int | str | None, ...]


def inputs_of(shapes: dict[str, Shape | None], dtype: DType = DType.F32) -> list[Input]:
    return [Input(name, dtype, shape) for name, shape in shapes.items()]


def bound(inputs: list[Input], options: CompileOptions) -> dict[str, tuple[int, ...]]:
    return {name: kind.dims for name, kind in bind(inputs, (), options, Limits()).types.items()}


TABLE: list[tuple[dict[str, Shape | None], dict[str, tuple[int, ...]]]] = [
    ({"x": ("batch", 3, "h", "w")}, {"x": (1, 3, 224, 224)}),
    ({"x": ("N", None, None, None)}, {"x": (1, 3, 224, 224)}),
    ({"x": (None, 3, 299, "w")}, {"x": (1, 3, 299, 299)}),
    ({"x": (None, "h", "w", 3)}, {"x": (1, 224, 224, 3)}),
    ({"x": (1, 3, "h", "w"), "y": (1, 3, 64, 96)}, {"x": (1, 3, 64, 96), "y": (1, 3, 64, 96)}),
    ({"ids": ("batch_size", "sequence_length")}, {"ids": (1, 128)}),
    ({"ids": ("b", None), "mask": ("b", 77)}, {"ids": (1, 77), "mask": (1, 77)}),
    ({"x": (2, "tokens", 64)}, {"x": (2, 128, 64)}),
    ({"x": ("time", 1, 40)}, {"x": (1, 1, 40)}),
    ({"lengths": ("batch",)}, {"lengths": (1,)}),
    ({"waveforms": ("batch", "N")}, {"waveforms": (1, 16000)}),
    ({"speech": (None,)}, {"speech": (16000,)}),
    ({"x": ("batch", "N")}, {"x": (1, 128)}),
    ({"state": (2, None, 128)}, {"state": (2, 1, 128)}),
    ({"x": (None,)}, {"x": (1,)}),
    ({"x": None}, {"x": (1, 3, 224, 224)}),
    ({"x": (1, 8)}, {"x": (1, 8)}),
    ({"x": ()}, {"x": ()}),
]


@pytest.mark.parametrize(("shapes", "expected"), TABLE)
def test_open_dimensions_get_usual_values(shapes: dict[str, Shape | None], expected: Any) -> None:
    inputs = inputs_of(shapes)
    corrected = correct(inputs, CompileOptions())
    assert bound(inputs, corrected) == expected
    assert correct(inputs, corrected) == corrected
    assert not open_inputs(inputs, corrected)


def test_an_integer_input_without_a_shape_is_taken_for_a_sequence() -> None:
    inputs = inputs_of({"ids": None}, DType.I64)
    assert bound(inputs, correct(inputs, CompileOptions())) == {"ids": (1, 128)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dims": {"h": 32}}, {"dims": {"h": 32, "w": 224}, "inputs": {}}),
        ({"dims": {"h": 32, "depth": 3}}, {"dims": {"h": 32, "w": 224}, "inputs": {}}),
        ({"inputs": {"nobody": [1]}}, {"dims": {"h": 224, "w": 224}, "inputs": {}}),
        ({"inputs": {"x": [2, 3, 32]}}, {"dims": {"h": 224, "w": 224}, "inputs": {"x": None}}),
        ({"inputs": {"x": [2, 4, 32, 32]}}, {"dims": {"h": 224, "w": 224}, "inputs": {"x": None}}),
        ({"inputs": {"x": [2, 3, 32, 48]}}, {"dims": {}, "inputs": {"x": (2, 3, 32, 48)}}),
        (
            {"inputs": {"x": [2, 3, 32, 48]}, "dims": {"h": 64}},
            {"dims": {"h": 64}, "inputs": {"x": (2, 3, 32, 48)}},
        ),
    ],
)
def test_what_fits_the_model_is_kept_and_the_rest_gives_way(given: Any, expected: Any) -> None:
    inputs = inputs_of({"x": ("batch", 3, "h", "w")})
    corrected = correct(inputs, CompileOptions.from_json({"threads": 3, "seed": 5, **given}))
    bind(inputs, (), corrected, Limits())
    assert (corrected.threads, corrected.seed) == (3, 5)
    assert dict(corrected.binding) == expected["dims"]
    assert {name: spec.shape for name, spec in corrected.inputs.items()} == expected["inputs"]


def test_of_two_shapes_that_give_a_name_two_sizes_both_are_kept() -> None:
    inputs = inputs_of({"x": ("n", "len"), "y": ("n", "len", 4)})
    corrected = correct(inputs, CompileOptions.from_json({"inputs": {"x": [2, 9], "y": [2, 8, 4]}}))
    assert bound(inputs, corrected) == {"x": (2, 9), "y": (2, 8, 4)}


def test_what_binds_already_is_left_as_it_is() -> None:
    inputs = inputs_of({"x": ("batch", 3, "h", "w"), "mask": ("batch", "h")})
    for plain in (
        {"dims": {"h": 8, "w": 9}},
        {"inputs": {"x": [2, 3, 8, 9]}},
        {"dims": {"batch": 4}, "inputs": {"x": [4, 3, 8, 9]}},
    ):
        options = CompileOptions.from_json(plain)
        bind(inputs, (), options, Limits())
        assert correct(inputs, options) == options
        assert not open_inputs(inputs, options)


def test_the_inputs_left_open_are_those_that_binding_complains_of() -> None:
    inputs = inputs_of({"x": ("n", 3, "h", "w"), "y": ("n", "w"), "z": (4,), "r": None, "v": ("len",)})
    for plain, expected in (
        ({}, {"x", "y", "r", "v"}),
        ({"dims": {"w": 2}}, {"x", "r", "v"}),
        ({"dims": {"w": 2, "h": 3, "len": 5}}, {"r"}),
        ({"inputs": {"r": [1]}, "dims": {"w": 2, "h": 3, "len": 5}}, set()),
    ):
        options = CompileOptions.from_json(plain)
        assert open_inputs(inputs, options) == expected
        if expected:
            with pytest.raises(TilewrightError):
                bind(inputs, (), options, Limits())
