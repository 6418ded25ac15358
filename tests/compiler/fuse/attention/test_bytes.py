from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler.forms.byte_attention import as_byte_attention
from compiler.fuse import fuse
from compiler.fuse.attention.bytes import join_byte_attention
from compiler.fuse.joins import joins, replaced
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.around_softmax import refusals
from tests.compiler.fuse.byte_attentions import Form, forms, join_of
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.rewrite.sketch import Sketch


def test_a_joined_kernel_means_what_the_three_meant_bit_by_bit() -> None:
    for form in draws(forms(), 16):
        kernels, join = join_of(form)
        whole = replaced(kernels, [join])
        whole.verify()
        assert len(whole.calls) == len(kernels.calls) - 2
        found = form.laid_out(form.inputs())
        for got, want in zip(stepped(whole, found), stepped(kernels, found), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{form}\n{whole}")


def test_the_form_says_what_is_multiplied_and_what_the_weights_are_divided_by() -> None:
    view = as_byte_attention(join_of(Form(zeros=(3, 128, 5, 130), step=0.25))[1].call.kernel)
    assert view is not None
    assert [one.fixed_zero for one in (view.q, view.k, view.w, view.v)] == [3, 128, 5, 130]
    assert view.scale == 0.25
    assert (view.batches, view.queries, view.keys.extent, view.deep) == (2, 9, 20, 8)
    assert view.rounded.loads == (view.weight,)


def test_operands_that_are_rounded_where_they_are_read_are_joined_too() -> None:
    """QuantizeLinear of floats was fused into the product that reads its bytes."""
    kernels, join = join_of(Form(floats=True))
    assert [kernels.buffers[id].dtype for id in join.call.inputs] == [DType.F32] * 3


def rounded(s: Sketch, x: int) -> int:
    return s("QuantizeLinear", x, s.c(0.02), s.c(128, DType.U8))


def product(s: Sketch, a: int, b: int) -> int:
    """A product of unsigned bytes, scaled."""
    sums = s("MatMulInteger", a, b, s.c(0, DType.U8), s.c(128, DType.U8))
    return s("Mul", s("Cast", sums, to=1), s.c(0.001))


def scores(s: Sketch, rows: int = 5) -> int:
    return product(s, s.x(2, rows, 8, dtype=DType.U8), s.x(2, 8, 6, dtype=DType.U8))


def mixed(s: Sketch, weights: int) -> int:
    return product(s, weights, s.x(2, s.dims(weights)[-1], 8, dtype=DType.U8))


def kept_scores(s: Sketch) -> tuple[int, ...]:
    x = scores(s)
    return mixed(s, rounded(s, s("Softmax", x, axis=-1))), x


def read_twice(s: Sketch) -> tuple[int, ...]:
    weights = rounded(s, s("Softmax", scores(s), axis=-1))
    return mixed(s, weights), mixed(s, weights)


def of_few_rows(s: Sketch) -> tuple[int, ...]:
    return (mixed(s, rounded(s, s("Softmax", scores(s, 3), axis=-1))),)


def of_floats(s: Sketch) -> tuple[int, ...]:
    x = s("Softmax", s("MatMul", s.x(2, 5, 8), s.x(2, 8, 6)), axis=-1)
    return (mixed(s, rounded(s, x)),)


def by_columns(s: Sketch) -> tuple[int, ...]:
    return (mixed(s, rounded(s, s("Softmax", scores(s), axis=-2))),)


REFUSED: Mapping[str, Callable[[Sketch], tuple[int, ...]]] = {
    "the result between them is an output of the model": kept_scores,
    "the result between them is read elsewhere too": read_twice,
    "together they are not in the form of attention of bytes, or have too few rows": of_few_rows,
    "what comes before or after it is no product of bytes": of_floats,
    "it normalises another axis than the last": by_columns,
}
"""By reason, the outputs of a graph whose calls are not joined."""


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_fit_is_left(reason: str) -> None:
    s = Sketch(0, DType.F32)
    kernels = fuse(s.graph(*REFUSED[reason](s))).kernels
    said = refusals(kernels, join_byte_attention)
    assert not joins(kernels, frozenset({"byte_attention"}))
    assert reason in said, said
