"""Products and tables of quantised numbers in operators of com.microsoft, node by node beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.frontend import Limits, load
from compiler.frontend.reading import read as reading
from compiler.frontend.reading.read import ModelFile
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.one_node import agree, computed, refusal
from tests.peers import signed_weights

MS = "com.microsoft"
CHANCE = np.random.default_rng(11)
A = CHANCE.standard_normal((5, 8)).astype(np.float32)
BYTES = CHANCE.integers(0, 256, (5, 8)).astype(np.uint8)
SIGNED = signed_weights(CHANCE, 8, 6)
SCALES = CHANCE.uniform(0.01, 0.02, 6).astype(np.float32)
ONE, TWO, ZERO, BIAS = (
    np.array(0.01, np.float32),
    np.array(0.02, np.float32),
    np.array(7, np.uint8),
    CHANCE.standard_normal(6).astype(np.float32),
)
BLOCKS = CHANCE.integers(0, 256, (6, 2, 8)).astype(np.uint8)
OF_BLOCKS = CHANCE.uniform(0.01, 0.02, 12).astype(np.float32)
WIDE = CHANCE.standard_normal((3, 32)).astype(np.float32)
Z8 = np.array(3, np.int8)

Arrays = list[np.ndarray | None]
CASES: tuple[tuple[str, Arrays, Mapping[str, Any], tuple[int, ...]], ...] = (
    ("MatMulIntegerToFloat", [BYTES, SIGNED, ONE, SCALES, ZERO, np.zeros(6, np.int8), BIAS], {}, (1,)),
    ("MatMulIntegerToFloat", [BYTES, SIGNED, ONE, ONE, ZERO], {}, ()),
    ("DynamicQuantizeMatMul", [A, SIGNED, ONE, Z8, BIAS], {}, (1,)),
    ("QGemm", [BYTES, ONE, ZERO, SIGNED, ONE, Z8, CHANCE.integers(-99, 99, 6).astype(np.int32)], {}, (3,)),
    ("QGemm", [BYTES, ONE, ZERO, SIGNED.T.copy(), ONE, Z8, None, TWO, ZERO], {"transB": 1, "alpha": 0.5}, (3,)),
    ("MatMulNBits", [WIDE, BLOCKS, OF_BLOCKS], {"bits": 4, "block_size": 16, "K": 32, "N": 6}, (1, 2)),
    ("MatMulNBits", [WIDE[:, :27].copy(), BLOCKS, OF_BLOCKS], {"bits": 4, "block_size": 16, "K": 27, "N": 6}, (1, 2)),
    (
        "MatMulNBits",
        [WIDE, BLOCKS, OF_BLOCKS, CHANCE.integers(0, 256, 6).astype(np.uint8)],
        {"bits": 4, "block_size": 16, "K": 32, "N": 6},
        (1, 2, 3),
    ),
    (
        "GatherBlockQuantized",
        [CHANCE.integers(0, 256, (7, 16)).astype(np.uint8), np.array([3, 0, 6]), SCALES[:2].repeat(7).reshape(7, 2)],
        {"block_size": 16, "quantize_axis": 1},
        (0, 2),
    ),
    (
        "GatherBlockQuantized",
        [
            CHANCE.integers(0, 256, (7, 16)).astype(np.uint8),
            np.array([[3, 0, 6], [1, 1, 5]]),
            CHANCE.uniform(0.01, 0.02, (7, 2)).astype(np.float32),
            CHANCE.integers(0, 256, (7, 1)).astype(np.uint8),
        ],
        {"block_size": 16, "quantize_axis": 1, "bits": 4},
        (0, 2, 3),
    ),
    (
        "GatherBlockQuantized",
        [
            CHANCE.integers(0, 256, (7, 32)).astype(np.uint8),
            np.array([2, 6]),
            CHANCE.uniform(0.01, 0.02, (7, 2)).astype(np.float32),
        ],
        {"block_size": 16, "quantize_axis": 1, "bits": 8},
        (0, 2),
    ),
    (
        "MatMulNBits",
        [WIDE, BLOCKS, OF_BLOCKS, None, CHANCE.permutation(np.arange(32) // 16).astype(np.int32)],
        {"bits": 4, "block_size": 16, "K": 32, "N": 6},
        (1, 2, 4),
    ),
    (
        "MatMulNBits",
        [WIDE, CHANCE.integers(0, 256, (6, 2, 4)).astype(np.uint8), OF_BLOCKS],
        {"bits": 2, "block_size": 16, "K": 32, "N": 6},
        (1, 2),
    ),
    (
        "MatMulNBits",
        [WIDE, CHANCE.integers(0, 256, (6, 2, 16)).astype(np.uint8), OF_BLOCKS],
        {"bits": 8, "block_size": 16, "K": 32, "N": 6},
        (1, 2),
    ),
    (
        "QLinearWhere",
        [BYTES > 100, BYTES, ONE, ZERO, BYTES[::-1].copy(), TWO, ZERO, TWO, ZERO],
        {},
        (),
    ),
)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_it_is_what_onnxruntime_computes(number: int) -> None:
    op, arrays, attrs, constants = CASES[number]
    agree(op, arrays, attrs, 1, MS, constants=constants)


def test_attention_of_bytes_is_what_onnxruntime_computes() -> None:
    x, w = CHANCE.integers(0, 256, (1, 5, 8)).astype(np.uint8), signed_weights(CHANCE, 8, 24)
    bias, mask = CHANCE.standard_normal(24).astype(np.float32), np.array([4], np.int32)
    arrays: Arrays = [x, w, bias, ONE, ONE, mask, ZERO, np.array(0, np.int8)]
    agree("QAttention", arrays, {"num_heads": 2}, 1, MS, constants=(1,))


def test_activations_of_a_half_type_are_multiplied_by_weights_that_are_not_rounded_to_it() -> None:
    attrs = {"bits": 4, "block_size": 16, "K": 32, "N": 6}
    x, scales = WIDE.astype(np.float16), OF_BLOCKS.astype(np.float16)
    (got,) = computed("MatMulNBits", [x, BLOCKS, scales], attrs, 1, MS, constants=(1, 2))
    codes = np.stack([BLOCKS & 15, BLOCKS >> 4], -1).reshape(6, 2, 16).astype(np.float64) - 8
    weights = (codes * scales.reshape(6, 2, 1).astype(np.float64)).reshape(6, 32)
    want = x.astype(np.float64) @ weights.T
    assert got.dtype == np.float16
    assert np.abs(got - want).max() <= 2**-11 * np.abs(want).max()


@pytest.mark.parametrize(
    ("scales", "zeros", "reason"),
    [
        (11, 6, "it has 11 scales, and 6 rows of 2 blocks need 12"),
        (12, 5, "its zero_points have 5 elements, and 6 rows of 2 blocks need 6"),
        (12, 48, "its zero_points have 48 elements, and 6 rows of 2 blocks need 6"),
    ],
)
def test_scales_and_zero_points_that_do_not_fit_the_blocks_of_a_matrix_are_refused(
    scales: int, zeros: int, reason: str
) -> None:
    attrs = {"bits": 4, "block_size": 16, "K": 32, "N": 6}
    arrays: list[np.ndarray] = [WIDE, BLOCKS, np.ones(scales, np.float32), np.zeros(zeros, np.uint8)]
    assert refusal("MatMulNBits", arrays, attrs, 1, MS, constants=(1, 2, 3)).reason == reason


@pytest.mark.parametrize(
    ("scales", "zeros", "reason"),
    [
        ((6, 2), (7, 1), "its scales are [6, 2], and blocks of 16 of [7, 32] numbers need [7, 2]"),
        ((7, 2), (7, 2), "its zero_points are [7, 2], and blocks of 16 of [7, 32] numbers need [7, 1]"),
        ((7, 2), (6, 1), "its zero_points are [6, 1], and blocks of 16 of [7, 32] numbers need [7, 1]"),
    ],
)
def test_scales_and_zero_points_that_do_not_fit_the_blocks_of_a_table_are_refused(
    scales: tuple[int, ...], zeros: tuple[int, ...], reason: str
) -> None:
    attrs = {"block_size": 16, "quantize_axis": 1, "bits": 4}
    arrays = [np.zeros((7, 16), np.uint8), np.array([2]), np.ones(scales, np.float32), np.zeros(zeros, np.uint8)]
    assert refusal("GatherBlockQuantized", arrays, attrs, 1, MS, constants=(0, 2, 3)).reason == reason


def test_weights_in_blocks_must_be_known() -> None:
    attrs = {"bits": 4, "block_size": 16, "K": 32, "N": 6}
    assert "'B' must be known" in refusal("MatMulNBits", [WIDE, BLOCKS, OF_BLOCKS], attrs, 1, MS).reason


CODES = (1, 2, 8, 9, 10, 11)
"""Inputs of a DynamicQuantizeLSTM that are constants."""


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("kind", ["signed", "around 120", "lengths", "states", "beyond a byte"])
def test_a_recurrence_of_bytes_is_what_onnxruntime_computes(kind: str, per_column: bool) -> None:
    """Inputs and states are rounded where it rounds them; only steps that a sequence has count for a range."""
    zero = {"around 120": 120, "beyond a byte": 1}.get(kind, 0)
    x = CHANCE.standard_normal((7, 1, 3)).astype(np.float32)
    w, r = (signed_weights(CHANCE, 2, rows, 16) // 2 for rows in (3, 4))  # ONNX Runtime's pairs saturate on AVX2
    w, r = ((codes.astype(np.int16) + 120).astype(np.uint8) if zero else codes for codes in (w, r))
    shape = (2, 16) if per_column else (2,)
    scales = [CHANCE.uniform(0.004, 0.008, shape).astype(np.float32) for _ in range(2)]
    zeros = [np.full(shape, zero, w.dtype)] * 2
    bias = CHANCE.standard_normal((2, 32)).astype(np.float32)
    states: list[np.ndarray | None] = [None, None]
    lengths = np.array([4], np.int32) if kind == "lengths" else None
    if kind == "lengths":
        x[4:] *= 100
    if kind == "states":
        states = [3 * CHANCE.standard_normal((2, 1, 4)).astype(np.float32) for _ in range(2)]
    arrays: Arrays = [x, w, r, bias, lengths, *states, None, scales[0], zeros[0], scales[1], zeros[1]]
    found = agree(
        "DynamicQuantizeLSTM", arrays, {"hidden_size": 4, "direction": "bidirectional"}, 3, MS, constants=CODES
    )
    assert max(np.abs(one).max() for one in found) > 0.1


def test_each_sequence_of_a_recurrence_of_bytes_has_a_range_of_its_own() -> None:
    """As in ONNX Runtime where each is a thread's; with one thread they share one there."""
    x = CHANCE.standard_normal((5, 2, 3)).astype(np.float32)
    w, r = (signed_weights(CHANCE, 1, rows, 16) // 2 for rows in (3, 4))
    one, zero = np.full(1, 0.01, np.float32), np.zeros(1, np.int8)
    start = np.array([[[9.0, -9.0, 5.0, 7.0], [0.1, 0.2, 0.3, 0.4]]], np.float32)

    def run() -> np.ndarray:
        arrays: Arrays = [x, w, r, None, None, start, None, None, one, zero, one, zero]
        return computed("DynamicQuantizeLSTM", arrays, {"hidden_size": 4}, 3, MS, constants=CODES)[0]

    both = run()
    start[0, 0] = 1.0
    np.testing.assert_array_equal(run()[:, :, 1], both[:, :, 1])


def test_codes_that_products_read_by_other_groups_are_other_matrices() -> None:
    """One tensor of codes with the same scales, by several g_idx that have as many inputs in each block."""
    scales = CHANCE.uniform(0.01, 0.02, (6, 2)).astype(np.float32)
    orders = [np.arange(32) // 16, np.arange(32) % 2, np.arange(31, -1, -1) // 16]
    codes = CHANCE.integers(0, 256, (6, 2, 8)).astype(np.uint8)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(6, 32).astype(np.float32) - 8
    wanted = [WIDE @ (nibbles * scales[:, order]).T for order in orders]
    attrs: dict[str, Any] = {"K": 32, "N": 6, "bits": 4, "block_size": 16}
    nodes = [
        helper.make_node("MatMulNBits", ["x", "codes", "scales", "", f"g{at}"], [f"y{at}"], domain=MS, **attrs)
        for at in range(len(orders))
    ]
    groups = [numpy_helper.from_array(one.astype(np.int32), f"g{at}") for at, one in enumerate(orders)]
    graph = helper.make_graph(
        nodes,
        "orders",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, WIDE.shape)],
        [helper.make_tensor_value_info(f"y{at}", TensorProto.FLOAT, None) for at in range(len(orders))],
        [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales.reshape(-1), "scales"), *groups],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    loaded = load(model.SerializeToString(), CompileOptions(), OPERATORS).graph
    values = evaluate_graph(loaded, {loaded.inputs[0]: WIDE}, OPERATORS)
    for output, want in zip(loaded.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[output], want, rtol=1e-5, atol=1e-5)


def test_a_file_is_read_once_and_its_matrices_are_made_floats_once_whatever_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = 600, 1024
    packed = CHANCE.integers(0, 256, (rows, columns // 32, 16)).astype(np.uint8)
    scales = CHANCE.uniform(0.01, 0.02, rows * columns // 32).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "codes", "scales"], ["y"], domain=MS, K=columns, N=rows, bits=4, block_size=32
    )
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", rows])],
        [numpy_helper.from_array(packed, "codes"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    path = tmp_path / "blocks.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    read: list[Path] = []
    parse = reading.parse

    def watched(model: Path, limits: Limits) -> Any:
        read.append(model)
        return parse(model, limits)

    monkeypatch.setattr(reading, "parse", watched)
    file = ModelFile(path)
    loaded = [load(file, CompileOptions(dims={"rows": size}), OPERATORS) for size in (1, 3)]
    assert read == [path]
    first, second = (
        next(array for array in one.graph.constants.values() if array.shape == (columns, rows)) for one in loaded
    )
    assert first is second
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(rows, columns).astype(np.float32)
    expected = (nibbles - 8) * np.repeat(scales.reshape(rows, -1), 32, 1)
    assert np.array_equal(first, expected.T)
    assert len({one.digest for one in loaded}) == 1
