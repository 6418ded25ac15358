"""TFLite programs in TOSA: every operator's form computes what the int8 operator does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.accelerate import vela
from compiler.accelerate.chips import chip_of
from compiler.accelerate.formats import by_tosa
from compiler.accelerate.tflite.flatbuffer import VALID, Program, TfliteWriter
from compiler.accelerate.tflite.kernels import KERNELS
from compiler.accelerate.tflite.reference import evaluate
from compiler.accelerate.tosa.execute import OPERATORS, read
from compiler.accelerate.tosa.lower import LOWERINGS, lowered
from compiler.accelerate.tosa.write import to_bytes
from tests.compiler.accelerate.drawn import CASES, SEEDS, Drawn

MOST_STEPS = {"AVERAGE_POOL_2D": 1, "RESIZE_BILINEAR": 2, "SOFTMAX": 1}
"""Of difference from TFLite: ties of an average go up, pixels' positions are exact where TFLite's have 10 bits, and a
softmax has 15 bits where TFLite's has floats."""


def _kinds(program: Program) -> list[str]:
    return [one.kind for one in lowered(program).graph.operators if not one.kind.startswith("CONST")]


@pytest.mark.parametrize("name", CASES)
def test_a_form_computes_what_the_operator_does(name: str) -> None:
    differs = elements = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        CASES[name](drawn)
        program = drawn.writer.program(drawn.numbers, [drawn.out])
        made = lowered(program)
        assert not made.refused
        (found,) = read(to_bytes(made.graph)).run(drawn.given)
        wanted = evaluate(program, dict(zip(drawn.numbers, drawn.given, strict=True)))[drawn.out]
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        apart = np.abs(found.astype(int) - wanted)
        assert apart.max(initial=0) <= MOST_STEPS.get(name, 0), f"seed {seed}"
        differs, elements = differs + int((apart > 0).sum()), elements + apart.size
    assert elements > 0
    assert (differs > 0) == (name in MOST_STEPS)


def test_every_operator_that_is_written_has_a_form() -> None:
    assert {*LOWERINGS} == {*KERNELS}


VELAS = {"ARITHMETIC_RIGHT_SHIFT": "asr", "LOGICAL_LEFT_SHIFT": "shl", "AVG_POOL2D": "avgpool", "MAX_POOL2D": "maxpool"}
"""Operators whose names in Vela are not ours without case and underscores."""


def test_vela_reads_the_operators_that_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader shares nothing with the one here: a wrong number would be another operator, or refused."""
    pytest.importorskip("ethosu")
    given: list[set[str]] = []

    def sources(tables: Any) -> tuple[()]:
        given.append({row[1].lower() for row in tables["source"].data} - {"const"})
        return ()

    monkeypatch.setattr(vela, "_parts", sources)
    chip, seen = chip_of("npu:ethos-u85-256", "tosa"), set[str]()
    for name, write in {**CASES, "a long SOFTMAX": _long_softmax}.items():
        for seed in (1, 3):
            drawn = Drawn(seed)
            write(drawn)
            program = drawn.writer.program(drawn.numbers, [drawn.out])
            vela.compile_file(to_bytes(lowered(program).graph), chip)
            assert given.pop() == {VELAS.get(kind, kind.replace("_", "").lower()) for kind in _kinds(program)}, name
            seen |= {*_kinds(program)}
    assert {*OPERATORS} - seen == {"CONST", "CONST_SHAPE"}


def _long_softmax(drawn: Drawn) -> None:
    x = drawn.operand(1, 2, 1500)
    drawn.made("SOFTMAX", [x], (1, 2, 1500), (1 / 256, -128), beta=1.0)


class _Built:
    """A TFLite program in the making, with its input `x` of 1, 6, 6, 4 bytes."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.writer = TfliteWriter()
        self.x = self.writer.tensor("x", (1, 6, 6, 4), "int8", 0.05, 3)

    def padded(self, x: int, widths: list[list[int]], shape: tuple[int, ...], fill: int | None = None) -> int:
        y = self.writer.tensor("padded", shape, "int8", 0.05, 3)
        inputs = [x, self.writer.constant("widths", np.array(widths, np.int32))]
        if fill is not None:
            inputs.append(self.writer.constant("fill", np.array([fill], np.int8), 0.05, 3))
        self.writer.operator("PAD" if fill is None else "PADV2", inputs, [y])
        return y

    def conv(self, x: int, size: int, stride: int = 1, kernel: int = 3) -> int:
        weights = self.random.integers(-127, 128, (5, kernel, kernel, 4)).astype(np.int8)
        y = self.writer.tensor("y", (1, size, size, 5), "int8", 0.9, -4)
        bias = self.writer.constant("b", np.arange(5, dtype=np.int32), np.full(5, 0.0005))
        inputs = [x, self.writer.constant("w", weights, np.full(5, 0.01)), bias]
        self.writer.operator("CONV_2D", inputs, [y], padding=VALID, stride_h=stride, stride_w=stride)
        return y

    def pool(self, kind: str, x: int, size: int) -> int:
        y = self.writer.tensor("pooled", (1, size, size, 4), "int8", 0.05, 3)
        options: dict[str, Any] = {"padding": VALID, "stride_h": 1, "stride_w": 1}
        self.writer.operator(kind, [x], [y], **options, filter_height=3, filter_width=3)
        return y

    def checked(self, *outputs: int) -> list[str]:
        """The operators of its form, whose values are those of the program."""
        program = self.writer.program([self.x], outputs)
        given = {self.x: self.random.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)}
        wanted, found = evaluate(program, given), by_tosa(program, given)
        for step in program.steps:
            np.testing.assert_array_equal(found[step.outputs[0]], wanted[step.outputs[0]], step.kind)
        return _kinds(program)


def test_a_window_states_the_padding_before_it() -> None:
    one = _Built()
    padded = one.padded(one.x, [[0, 0], [1, 2], [2, 1], [0, 0]], (1, 9, 9, 4))
    assert one.checked(one.conv(padded, 7)) == ["CONV2D", "RESCALE"]
    pool = _Built()
    padded = pool.padded(pool.x, [[0, 0], [1, 1], [1, 1], [0, 0]], (1, 8, 8, 4), -128)
    assert pool.checked(pool.pool("MAX_POOL_2D", padded, 6)) == ["MAX_POOL2D"]


def test_windows_that_do_not_reach_an_end_leave_it_out() -> None:
    one = _Built()
    padded = one.padded(one.x, [[0, 0], [1, 1], [1, 1], [0, 0]], (1, 8, 8, 4))
    assert one.checked(one.conv(padded, 3, 2)) == ["CONV2D", "RESCALE"]
    other = _Built()
    assert other.checked(other.conv(other.x, 2, 2)) == ["SLICE", "CONV2D", "RESCALE"]


@pytest.mark.parametrize("why", ["an average counts", "another fill", "another reader", "a window inside it"])
def test_a_padding_that_windows_cannot_state_stays(why: str) -> None:
    one, around = _Built(), [[0, 0], [1, 1], [1, 1], [0, 0]]
    if why == "an average counts":
        outputs = [one.pool("MAX_POOL_2D", one.padded(one.x, around, (1, 8, 8, 4), 3), 6)]
    elif why == "another fill":
        outputs = [one.conv(one.padded(one.x, around, (1, 8, 8, 4), -128), 6)]
    elif why == "another reader":
        padded = one.padded(one.x, around, (1, 8, 8, 4))
        outputs = [one.conv(padded, 6), padded]
    else:
        outputs = [one.conv(one.padded(one.x, [[0, 0], [3, 3], [3, 3], [0, 0]], (1, 12, 12, 4)), 10)]
    assert "PAD" in one.checked(*outputs)


def test_what_has_no_form_is_told_for_each_operator_and_the_others_are_lowered() -> None:
    drawn = Drawn(0)
    a, b = drawn.operand(2, 3, 4), drawn.operand(1, 4, 5)
    drawn.made("BATCH_MATMUL", [a, b], (2, 3, 5))
    first = drawn.out
    drawn.made("RELU", [first], (2, 3, 5))
    made = lowered(drawn.writer.program(drawn.numbers, [drawn.out]))
    assert made.refused == {first: "MATMUL takes as many matrices of one operand as of the other"}
    large = Drawn(0)
    x = large.operand(1, 2, 2, 1, scale=(0.1, 0))
    large.made("RESIZE_BILINEAR", [x, large.ints(5000, 2)], (1, 5000, 2, 1), (0.1, 0), half_pixel_centers=True)
    (why,) = lowered(large.writer.program(large.numbers, [large.out])).refused.values()
    assert why.startswith("RESIZE takes scales up to 2048")


@pytest.mark.parametrize(("length", "scale"), [(3, 0.1), (256, 0.02), (300, 0.02), (1500, 0.001), (1500, 0.1)])
def test_a_softmax_of_any_length_is_within_a_step_of_float64(length: int, scale: float) -> None:
    drawn = Drawn(length)
    x = drawn.operand(2, 3, length, scale=(scale, 5))
    drawn.given[0][0, 0] = 127
    drawn.given[0][0, 1, 1:] = -128
    drawn.made("SOFTMAX", [x], (2, 3, length), (1 / 256, -128), beta=1.0)
    (found,) = read(to_bytes(lowered(drawn.writer.program(drawn.numbers, [drawn.out])).graph)).run(drawn.given)
    powers = np.exp(scale * drawn.given[0].astype(np.float64))
    wanted = np.minimum(256 * powers / powers.sum(-1, keepdims=True) - 128, 127)
    assert np.abs(found - wanted).max() <= 0.6


@pytest.mark.parametrize(("kernel", "stride"), [((2, 4), (2, 2)), ((3, 3), (3, 1)), ((3, 2), (2, 2)), ((1, 2), (2, 2))])
def test_a_transposed_convolution_is_by_phases_where_strides_divide_its_kernel(kernel: Any, stride: Any) -> None:
    drawn = Drawn(1)
    x = drawn.operand(2, 4, 3, 5)
    weights, scales = drawn.weights(4, *kernel, 5)
    shape = (2, 3 * stride[0] + kernel[0], 2 * stride[1] + kernel[1], 4)
    options = {"padding": VALID, "stride_h": stride[0], "stride_w": stride[1]}
    drawn.made("TRANSPOSE_CONV", [drawn.ints(*shape), weights, x, drawn.bias(4, x, scales)], shape, **options)
    program = drawn.writer.program(drawn.numbers, [drawn.out])
    given = {x: drawn.given[0]}
    np.testing.assert_array_equal(by_tosa(program, given)[drawn.out], evaluate(program, given)[drawn.out])
    divides = not any(size % by for size, by in zip(kernel, stride, strict=True))
    assert ("TRANSPOSE_CONV2D" in _kinds(program)) == (not divides)


def test_each_tensor_of_a_form_is_known_by_what_it_is_for() -> None:
    one = _Built()
    made = lowered(one.writer.program([one.x], [one.conv(one.x, 4)]))
    assert {name: of for name, of in made.of.items() if not name.startswith(("constant", "shape"))} == {
        "y.sums": "y",
        "y": "y",
    }
