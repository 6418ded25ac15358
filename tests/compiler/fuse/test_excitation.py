"""A mean and the two products after it as one call: what it means, where it is offered, why not elsewhere."""

from __future__ import annotations

from functools import cache

import pytest

from compiler.forms.excitation import as_excitation
from compiler.fuse import fuse
from compiler.fuse.excitation import MOST_IMAGES, join_excitation
from compiler.fuse.joins import Join, joins
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import check, draws
from tests.compiler.devices.cuda.algorithms import test_loops as test_cu_loops
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.fuse.excitations import excitation, excitations
from tests.compiler.fuse.separables import check_joined, joined_case
from tests.compiler.rewrite.sketch import Sketch


def offered(graph: Graph) -> tuple[KernelGraph, tuple[Join, ...]]:
    kernels = fuse(graph).kernels
    return kernels, tuple(join for join in joins(kernels) if join.kind == "excitation")


@cache
def drawn() -> list[tuple[KernelGraph, Join]]:
    """A squeeze and two products after it, and what joins them."""
    return [(kernels, found[0]) for graph in draws(excitations(), 60) for kernels, found in [offered(graph)] if found]


def test_most_squeezes_before_two_products_are_offered_as_one_call() -> None:
    assert len(drawn()) > 50
    assert any(join.call.kernel.shared for _, join in drawn() if isinstance(join.call.kernel, Kernel))


def test_a_joined_kernel_means_what_the_three_meant() -> None:
    for kernels, join in drawn():
        check_joined(kernels, join, 2, 1e-3)


def test_plain_loops_in_c_carry_out_joined_kernels() -> None:
    check([joined_case(*chain, seed) for seed, chain in enumerate(drawn()[:30])], optimise="-O1")


@needs_double
def test_plain_loops_in_cuda_carry_out_joined_kernels() -> None:
    test_cu_loops.check([joined_case(*chain, seed) for seed, chain in enumerate(drawn()[:16])], (None, 32))


def test_the_squeeze_alone_is_a_kernel_again() -> None:
    for _, join in drawn():
        form = as_excitation(join.call.kernel)
        assert form is not None
        form.squeeze_kernel.verify()
        assert [slot.name for slot in form.squeeze_kernel.outputs] == [form.first.row.slot]


@pytest.mark.parametrize(("squeeze", "linear"), [("ReduceMean", True), ("ReduceSum", True), ("ReduceL2", False)])
def test_parts_of_the_elements_add_up_unless_a_map_bends_their_sum(squeeze: str, linear: bool) -> None:
    _, (join,) = offered(excitation(16, 4, (7, 7), squeeze=squeeze))
    form = as_excitation(join.call.kernel)
    assert form is not None
    assert form.is_linear is linear


def refusals(graph: Graph) -> set[str]:
    """Why no three calls one after the other are joined."""
    kernels = fuse(graph).kernels
    chains = [
        (first, second, third)
        for third in range(len(kernels.calls))
        for second in range(third)
        for first in range(second)
        if reads(kernels, third, second) and reads(kernels, second, first)
    ]
    found = [join_excitation(kernels, chain) for chain in chains]
    assert all(isinstance(one, str) for one in found)
    return {one for one in found if isinstance(one, str)}


def reads(kernels: KernelGraph, call: int, other: int) -> bool:
    return bool({*kernels.calls[call].inputs} & {*kernels.calls[other].outputs})


def squeezed(s: Sketch, batch: int = 1) -> tuple[int, int]:
    """A convolution's result and its mean."""
    y = s("Conv", s.x(batch, 16, 7, 7), s.normal(16, 1, 1, 1), group=16)
    return y, s("GlobalAveragePool", y)


def test_a_mean_that_is_read_elsewhere_stays_a_call() -> None:
    s = Sketch(0, DType.F32)
    _, z = squeezed(s)
    last = s("Conv", s("Relu", s("Conv", z, s.normal(4, 16, 1, 1))), s.normal(16, 4, 1, 1))
    assert "the result between them is an output of the model" in refusals(s.graph(z, last))


def test_a_mean_for_one_product_alone_stays_a_call() -> None:
    s = Sketch(0, DType.F32)
    y, z = squeezed(s)
    gate = s("Sigmoid", s("Conv", z, s.normal(16, 16, 1, 1)))
    found = refusals(s.graph(s("Conv", s("Mul", y, gate), s.normal(8, 16, 1, 1))))
    assert "they are not over the same images, each for one axis of its own" in found


def test_three_products_stay_calls() -> None:
    s = Sketch(0, DType.F32)
    y = s.x(1, 16, 7, 7)
    for _ in range(3):
        y = s("Relu", s("Conv", y, s.normal(16, 16, 1, 1)))
    assert refusals(s.graph(y)) == {"the first of them sums products too"}


def test_means_of_many_images_are_left_to_kernels_with_rows_enough() -> None:
    s = Sketch(0, DType.F32)
    _, z = squeezed(s, MOST_IMAGES + 1)
    s("Conv", s("Relu", s("Conv", z, s.normal(4, 16, 1, 1))), s.normal(16, 4, 1, 1))
    assert "there are too many images" in refusals(s.graph())
