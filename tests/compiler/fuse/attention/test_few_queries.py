"""Attention of few queries made one call, with the mask that says where its keys end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler.forms.attention import MIN_QUERIES, as_attention, as_few_queries
from compiler.forms.key_bounds import key_bounds
from compiler.fuse import fuse
from compiler.fuse.attention.few_queries import join_few_queries
from compiler.fuse.joins import USUAL_KEYS, choose_joins, joins, replaced
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ir.tile import Cost, Menu, Tile, Variant
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.around_softmax import refusals
from tests.compiler.fuse.few_queries import PLACED, Form, forms, join_of
from tests.compiler.fuse.test_fuse import stepped
from tests.compiler.rewrite.sketch import Sketch


def test_a_joined_kernel_means_what_its_calls_meant() -> None:
    for form in draws(forms(), 60):
        kernels, join = join_of(form)
        expected = form.rows < MIN_QUERIES or form.mask in PLACED or form.dropped
        assert (join is not None) is expected, f"{form}\n{kernels}"
        if join is None:
            continue
        whole = replaced(kernels, [join])
        whole.verify()
        conditions = [id for id, buffer in whole.buffers.items() if buffer.dtype is DType.BOOL]
        assert len(conditions) == (form.mask == "given") + form.dropped + form.sink, str(whole)
        random = np.random.default_rng(form.keys)
        arrays = [form.array(kernels.buffers[id].type, random) for id in kernels.inputs]
        for got, want in zip(stepped(whole, arrays), stepped(kernels, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{form}\n{whole}")


@pytest.mark.parametrize("groups", [1, 3])
def test_heads_that_share_keys_are_rows_and_keys_are_read_once_each(groups: int) -> None:
    kernels, join = join_of(Form(heads=2, groups=groups, new=1, keys=40))
    assert join is not None
    view = as_few_queries(join.call.kernel)
    assert view is not None
    assert (view.batches, view.queries, view.keys.extent, view.deep) == (2, groups, 40, 16)
    assert (as_attention(join.call.kernel) is None) is (groups == 1)
    read = {kernels.buffers[id].type.dims for id in join.call.inputs}
    assert {(1, 2, 1, 16, 40), (1, 2, 1, 40, 16)} <= read, "keys or values are expanded"


@pytest.mark.parametrize(
    ("mask", "ends", "begins"),
    [
        ("past", 1, 0),
        ("window", 1, 1),
        ("reversed", 1, 0),
        ("infinite", 1, 0),
        ("infinities", 1, 1),
        ("added_lowest", 1, 0),
        ("triangle", 1, 0),
        ("added_triangle", 1, 0),
    ],
)
def test_a_mask_of_places_says_where_keys_end(mask: str, ends: int, begins: int) -> None:
    for groups in (1, 4):
        kernels, join = join_of(Form(groups=groups, mask=mask))
        assert join is not None
        view = as_few_queries(join.call.kernel)
        assert view is not None
        found = key_bounds(view)
        assert [bound.is_end for bound in found.bounds].count(True) == ends
        assert [bound.is_end for bound in found.bounds].count(False) == begins
        assert found.lowest == (-np.inf if "infinit" in mask else np.float32(-3e38))
        assert all(kernels.buffers[id].dtype is not DType.BOOL for id in join.call.inputs)


@pytest.mark.parametrize("groups", [1, 2])
def test_keys_beyond_a_size_that_is_known_while_running_are_left_out(groups: int) -> None:
    kernels, join = join_of(Form(groups=groups, mask="sized"))
    assert join is not None
    assert join.usual == USUAL_KEYS
    random = np.random.default_rng(4)
    for size in (0, 1, 17, 40):
        arrays = [Form().array(kernels.buffers[id].type, random) for id in kernels.inputs]
        arrays = [np.array(size) if array.ndim == 0 else array for array in arrays]
        (got,), (want,) = (stepped(one, arrays) for one in (replaced(kernels, [join]), kernels))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert bool(np.any(got)) is not (size == 0)


def test_a_size_beyond_which_scores_are_other_numbers_is_refused() -> None:
    s = Sketch(0, DType.F32)
    size = s.x(dtype=DType.I64)
    x = s("PadBeyond", s("MatMul", s.x(2, 2, 8), s.x(2, 8, 6)), size, axis=2, value=-9.0)
    weights = s("PadBeyond", s("Softmax", x, axis=-1), size, axis=2)
    kernels = fuse(s.graph(s("MatMul", weights, s.x(2, 6, 8)))).kernels
    (at,) = [at for at, call in enumerate(kernels.calls) if "Softmax" in call.kernel.family]
    (reader,) = kernels.readers[kernels.calls[at].outputs[0]]
    said = join_few_queries(kernels, kernels.writer[kernels.calls[at].inputs[0]], at, reader)
    assert said == "beyond a size of keys its argument is not -infinity"


def test_a_mask_that_is_data_stays_an_operand() -> None:
    kernels, join = join_of(Form(mask="given"))
    assert join is not None
    view = as_few_queries(join.call.kernel)
    assert view is not None
    assert not key_bounds(view).bounds
    assert any(kernels.buffers[id].dtype is DType.BOOL for id in join.call.inputs)


def test_a_mask_that_others_read_is_computed_for_them() -> None:
    s = Sketch(0, DType.F32)
    seen = s("LessOrEqual", s.c(np.arange(6), DType.I64), s.x(1, 1, dtype=DType.I64))
    scores = s("Where", seen, s("MatMul", s.x(2, 1, 8), s.x(2, 8, 6)), s.c(-3e38))
    y = s("MatMul", s("Softmax", scores, axis=-1), s.x(2, 6, 8))
    kernels = fuse(s.graph(y, s("Cast", seen, to=1))).kernels
    (join,) = joins(kernels, frozenset({"few_queries"}))
    whole = replaced(kernels, [join])
    assert len(whole.calls) == len(kernels.calls) - 2
    random = np.random.default_rng(3)
    arrays = [Form(keys=6).array(kernels.buffers[id].type, random) for id in kernels.inputs]
    for got, want in zip(stepped(whole, arrays), stepped(kernels, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_join_that_ends_at_places_counts_with_a_part_of_its_keys() -> None:
    parts = {mask: found.usual for mask in ("past", "given", "none") if (found := join_of(Form(mask=mask))[1])}
    assert parts == {"past": USUAL_KEYS, "given": 1.0, "none": 1.0}


@pytest.mark.parametrize(("seconds", "taken"), [(3.5, True), (5.0, False)])
def test_a_join_of_one_call_with_its_mask_is_taken_by_what_it_usually_takes(seconds: float, taken: bool) -> None:
    kernels, join = join_of(Form(groups=4, new=1))
    assert join is not None
    assert len(join.calls) == 1
    apart, whole = (
        Menu(name, (Variant(Tile("loops"), 1, 1, Cost(cost, "measured")),))
        for name, cost in (("a", 3.0), ("b", seconds))
    )
    chosen = choose_joins(kernels, [join], [apart] * len(kernels.calls), [whole], 1)
    assert bool(chosen.log[0].reason) is not taken
    assert (chosen.menus[-1].best.cost.seconds == seconds) is taken


def scores(s: Sketch, rows: int = 2) -> int:
    return s("MatMul", s.x(2, rows, 8), s.x(2, 8, 6))


def kept_scores(s: Sketch) -> tuple[int, ...]:
    x = scores(s)
    return s("MatMul", s("Softmax", x, axis=-1), s.x(2, 6, 8)), x


def read_twice(s: Sketch) -> tuple[int, ...]:
    weights = s("Softmax", scores(s), axis=-1)
    return s("MatMul", weights, s.x(2, 6, 8)), s("MatMul", weights, s.x(2, 6, 8))


def by_columns(s: Sketch) -> tuple[int, ...]:
    return (s("MatMul", s("Softmax", scores(s), axis=-2), s.x(2, 6, 8)),)


def of_no_product(s: Sketch) -> tuple[int, ...]:
    return (s("MatMul", s("Softmax", s("ReduceMax", s.x(2, 2, 3, 6), axes=(2,), keepdims=0), axis=-1), s.x(2, 6, 8)),)


REFUSED: Mapping[str, Callable[[Sketch], tuple[int, ...]]] = {
    "the result between them is an output of the model": kept_scores,
    "the result between them is read elsewhere too": read_twice,
    "it normalises another axis than the last": by_columns,
    "what comes before or after it is no product": of_no_product,
}
"""By reason, the outputs of a graph whose calls are not joined."""


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_fit_is_left(reason: str) -> None:
    s = Sketch(0, DType.F32)
    kernels = fuse(s.graph(*REFUSED[reason](s))).kernels
    said = refusals(kernels, join_few_queries)
    assert not joins(kernels, frozenset({"few_queries"}))
    assert reason in said, said


def test_of_many_rows_the_mask_alone_is_joined() -> None:
    kernels, join = join_of(Form(groups=4, new=5))
    assert any(isinstance(call.kernel, Kernel) and as_attention(call.kernel) for call in kernels.calls)
    assert join is not None
    assert (join.kind, len(join.calls), join.usual) == ("key_ends", 1, USUAL_KEYS)
    assert join_of(Form(groups=4, new=5, mask="given"))[1] is None
