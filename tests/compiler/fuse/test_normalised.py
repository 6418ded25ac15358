from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from compiler.forms.normalised import as_normalised
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.fuse.normalised import join_normalised
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import check
from tests.compiler.devices.cuda.algorithms import test_loops as test_cu_loops
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.fuse.normalisations import join_of, normalisation
from tests.compiler.fuse.separables import check_joined, joined_case
from tests.compiler.rewrite.sketch import Sketch

GRAPHS = (
    normalisation((1, 9), 24, 40),
    normalisation((2, 5), 33, 7, kept=True, after="Relu"),
    normalisation((1, 6), 16, 16, norm="RMSNormalization", kept=True),
    normalisation((4,), 20, 12, norm="RMSNormalization", after="Tanh"),
)


def test_a_joined_kernel_means_what_the_two_meant() -> None:
    for graph in GRAPHS:
        check_joined(*join_of(graph), 1, 1e-4)


def test_rows_that_others_read_are_a_result() -> None:
    kept = [as_normalised(join.call.kernel) for _, join in map(join_of, GRAPHS)]
    assert [view is not None and view.is_kept for view in kept] == [False, True, True, False]
    for view in kept:
        assert view is not None
        view.contraction.kernel.verify()


def test_plain_loops_in_c_carry_out_joined_kernels() -> None:
    check([joined_case(*join_of(graph)) for graph in GRAPHS], optimise="-O1")


@needs_double
def test_plain_loops_in_cuda_carry_out_joined_kernels() -> None:
    test_cu_loops.check([joined_case(*join_of(graph)) for graph in GRAPHS], (None, 32))


def layer(s: Sketch, x: int) -> int:
    """A dense layer."""
    return s("MatMul", x, s.normal(s.dims(x)[-1], 8))


def norm(s: Sketch, x: int) -> int:
    return s("LayerNormalization", s("Relu", x), s.positive(s.dims(x)[-1]), axis=-1)


def two_layers(s: Sketch) -> tuple[int, ...]:
    """As the projections before attention are: neither waits for the other."""
    row = norm(s, s.x(1, 4, 16))
    return layer(s, row), layer(s, row)


REFUSED: Mapping[str, Callable[[Sketch], tuple[int, ...]]] = {
    "the rows are read by what does not wait for the product": two_layers,
    "together they are not in the form of a product of normalised rows": lambda s: (
        layer(s, s("Softmax", s("Relu", s.x(3, 4, 16)), axis=-1)),
    ),
    "the second is no sum of products": lambda s: (s("Softmax", norm(s, s.x(3, 4, 16)), axis=-2),),
    "the product is not over the normalised rows, for one axis of columns": lambda s: (
        s("MatMul", s.normal(3, 5, 4), norm(s, s.x(3, 4, 16))),
    ),
}
"""By reason, the outputs of a graph whose calls are not joined."""


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_fit_is_left(reason: str) -> None:
    s = Sketch(0, DType.F32)
    kernels = fuse(s.graph(*REFUSED[reason](s))).kernels
    pairs = [
        (kernels.writer[id], at) for at, call in enumerate(kernels.calls) for id in call.inputs if id in kernels.writer
    ]
    said = {str(join_normalised(kernels, *pair)) for pair in pairs}
    assert not joins(kernels, frozenset({"normalised"}))
    assert reason in said, said
