"""Attention of few queries in parts of its keys, and the call that adds the parts up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.forms.attention import RUN, as_any_attention, as_attention, as_few_queries
from compiler.forms.key_bounds import ABSORBS, key_bounds
from compiler.fuse.attention.key_parts import KeyParts, in_key_parts
from compiler.fuse.joins import replaced
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Where
from compiler.ir.kernel import Kernel
from tests.compiler.devices.cpu.library import draws
from tests.compiler.fuse.few_queries import Form, forms, join_of
from tests.compiler.fuse.test_fuse import stepped

CHOSEN = ("past", "window", "reversed", "triangle")
"""Masks by places that make scores the form's lowest number."""


def attention_of(form: Form) -> tuple[KernelGraph, Call]:
    """A network's kernels with the join that there is, and its one call of attention."""
    kernels, join = join_of(form)
    whole = replaced(kernels, [join]) if join else kernels
    (call,) = [call for call in whole.calls if as_any_attention(call.kernel)]
    return whole, call


def with_parts(kernels: KernelGraph, call: Call, cut: KeyParts) -> KernelGraph:
    """The kernels with both calls in the place of one."""
    at, buffers = kernels.calls.index(call), {buffer.id: buffer for buffer in cut.buffers}
    calls = (*kernels.calls[:at], cut.parts, cut.whole, *kernels.calls[at + 1 :])
    return replace(kernels, buffers={**kernels.buffers, **buffers}, calls=calls)


LONG = Form(keys=2 * RUN + 2)
"""In three runs, the last of two keys."""


def test_parts_added_up_mean_what_the_call_meant() -> None:
    seen = 0
    for form in draws(forms(keys=(LONG.keys,)), 60):
        kernels, call = attention_of(form)
        for count in (2, 3):
            cut = in_key_parts(kernels, call, count)
            assert cut is not None
            seen += form.mask in CHOSEN and form.lowest > ABSORBS
            parts = with_parts(kernels, call, cut)
            parts.verify()
            random = np.random.default_rng(form.depth)
            arrays = [form.array(kernels.buffers[id].type, random) for id in kernels.inputs]
            for got, want in zip(stepped(parts, arrays), stepped(kernels, arrays), strict=True):
                largest = float(np.abs(want[np.isfinite(want)]).max(initial=1))
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * largest, err_msg=f"{form}\n{parts}")
    assert seen > 10


def cut_of(form: Form, count: int = 2) -> tuple[KernelGraph, Call, KeyParts]:
    """With its keys in parts."""
    kernels, call = attention_of(form)
    cut = in_key_parts(kernels, call, count)
    assert cut is not None
    return kernels, call, cut


@pytest.mark.parametrize("mask", ["past", "window", "infinities", "triangle", "none"])
def test_a_part_is_a_batch_of_its_own_and_ends_where_the_mask_says(mask: str) -> None:
    _, call, cut = cut_of(replace(LONG, mask=mask), 3)
    whole, part = as_few_queries(call.kernel), as_few_queries(cut.parts.kernel)
    assert whole is not None
    assert part is not None
    assert part.part is not None
    assert (part.batches, part.queries, part.most_keys) == (3 * whole.batches, whole.queries, RUN)
    assert key_bounds(part).bounds == key_bounds(whole).bounds


def test_a_part_is_no_attention_by_itself() -> None:
    kernels, call, cut = cut_of(replace(LONG, groups=4))
    assert as_attention(call.kernel)
    assert as_any_attention(cut.parts.kernel) is None
    assert in_key_parts(with_parts(kernels, call, cut), cut.parts, 2) is None
    assert in_key_parts(kernels, cut.whole, 2) is None


def test_without_the_guard_of_rows_that_a_part_leaves_out_it_is_no_part() -> None:
    """There exp(-inf - -inf) would be no number, which the sum of all parts takes in."""
    _, _, cut = cut_of(LONG)
    kernel = cut.parts.kernel
    assert isinstance(kernel, Kernel)
    blocks = tuple(
        replace(block, values=(value.otherwise,))
        if isinstance(value := block.values[0], Where) and not block.axes
        else block
        for block in kernel.blocks
    )
    assert blocks != kernel.blocks
    assert as_few_queries(replace(kernel, blocks=blocks)) is None


def test_keys_are_not_cut_where_a_part_would_have_none() -> None:
    kernels, call = attention_of(LONG)
    assert in_key_parts(kernels, call, 3) is not None
    assert in_key_parts(kernels, call, 4) is None
