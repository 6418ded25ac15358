from __future__ import annotations

import pytest

from compiler.ir.graph import Graph
from compiler.rewrite import rewrite
from tests.compiler.rewrite.sketch import Sketch


def in_a_row(share: float) -> Graph:
    """A 3x3 convolution of 32 channels and a 1x1 after it, of whose weights a share is not zero."""
    s = Sketch(3)
    x = s.x(1, 32, 8, 8)

    def weights(*shape: int) -> int:
        return s.c(s.rng.standard_normal(shape) * (s.rng.random(shape) < share))

    inner = s("Conv", x, weights(32, 32, 3, 3), pads=(1, 1, 1, 1))
    return s.graph(s("Conv", inner, weights(32, 32, 1, 1)))


@pytest.mark.parametrize(("share", "count"), [(1.0, 1), (0.1, 2), (0.3, 2)])
def test_convolutions_in_a_row_stay_two_where_the_product_of_sparse_weights_would_be_denser(
    share: float, count: int
) -> None:
    after = rewrite(in_a_row(share))
    assert [node.op for node in after.graph.nodes] == ["Conv"] * count
    refused = [one.reason for one in after.refusals if one.rule == "conv_of_conv"]
    assert refused == ["the product of sparse weights would have more weights that are not zero"] * (count == 2)
