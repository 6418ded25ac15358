"""Kernels that store and load small types, in C: every element, and every number at which rounding decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import pytest

from compiler.codegen.build import small_header
from compiler.codegen.scalars import SMALL_HEADER, literal, with_small
from compiler.devices.cpu.target import this_machine
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
from compiler.ir.small import BITS, FLOATS, ROUNDINGS
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, Library
from tests.compiler.small_values import SOURCES, beyond_integers, codes, given, read_as, same_bits
from tests.parse import parse_kernel


def conversion(values: np.ndarray, target: DType, how: str = "cast", rounding: str = "") -> Case:
    """A kernel that converts an array."""
    source, n = DType.of(values.dtype), len(values)
    text = f"kernel f(in x: {source}[{n}]; out y: {target}[{n}]) for i:{n} y[i] = {how}(x[i]):{target} {rounding}"
    kernel = parse_kernel(text)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return Case(kernel, buffers, (values,))


def to_small() -> Iterator[Case]:
    for target in BITS:
        for source in SOURCES:
            values = given(source, target)
            roundings = ROUNDINGS[1:] if target is DType.F8E8M0 else ()
            for how in ("cast", "saturate"):
                yield conversion(values, target, how)
                yield from (conversion(values, target, how, rounding) for rounding in roundings)
            if source.is_float and target not in FLOATS:
                yield conversion(beyond_integers(source), target, "saturate")


def from_small() -> Iterator[Case]:
    for source in BITS:
        yield from (conversion(codes(source), target) for target in read_as(source))
        numbers = codes(source)
        if source in FLOATS:
            numbers = numbers[np.isfinite(numbers.astype(np.float32))]
        yield from (conversion(numbers, other, "saturate") for other in BITS if other is not source)


@pytest.mark.parametrize("cases", [to_small, from_small], ids=["to small types", "from small types"])
def test_conversions_in_C_give_the_bits_that_they_mean(cases: object) -> None:
    every = list(cases())  # type: ignore[operator]
    library = Library.of(every, this_machine(), "-O1")
    assert len(every) > 100
    for number, case in enumerate(every):
        with np.errstate(all="ignore"):
            (want,) = evaluate(case.kernel, case.inputs)
        (got,) = library.run(number, case)
        at = got.view(np.uint8) != want.view(np.uint8)
        shown = "" if want.itemsize > 1 else f"{case.inputs[0][at]}: {got[at]}, not {want[at]}"
        assert same_bits(got, want), f"{case}\n{shown}"


def test_bits_above_an_element_are_not_read() -> None:
    octets = np.array([0x1F, 0xF7, 0x80], np.uint8)
    case = conversion(octets.view(DType.I4.numpy), DType.I32)
    (got,) = Library.of([case], this_machine(), "-O1").run(0, case)
    assert got.tolist() == [-1, 7, 0]


def test_the_header_has_the_formats_of_the_table() -> None:
    text = (files("compiler.codegen") / SMALL_HEADER).read_text()
    found = {
        name: [int(one, 0) for one in rest.split(",")]
        for name, rest in re.findall(r"^TW_SMALL_FLOAT\((\w+), (.*)\)", text, re.M)
    }
    wanted = {
        str(dtype): [form.bits, form.mantissa, form.bias, form.most, form.beyond, form.nan, int(form.unsigned_zero)]
        for dtype, form in FLOATS.items()
        if dtype is not DType.F8E8M0
    }
    assert found == wanted


def test_a_kernel_without_small_types_is_not_touched() -> None:
    text = "void k0(void) { tw_bf16 x; }\n"
    assert with_small(text) == text
    assert small_header([text]) == {}
    small = with_small("uint8_t x = tw_small_to_i4(3);")
    assert list(small_header([text, small])) == [SMALL_HEADER]


@pytest.mark.parametrize(
    ("value", "dtype", "code"),
    [(1.5, DType.F8E4M3FN, 0x3C), (-1.0, DType.F4E2M1, 0xA), (-1, DType.I4, 0xF), (2.0, DType.F8E8M0, 0x80)],
)
def test_a_literal_is_the_code_of_its_number(value: float, dtype: DType, code: int) -> None:
    assert literal(value, dtype) == f"((uint8_t){code:#04x})"
