"""Which results data size, and which are as large as constants say."""

from __future__ import annotations

import numpy as np

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ops import OPERATORS
from tests.compiler.frontend.open.at_sizes import model_of, opened
from tests.compiler.frontend.open.test_control_flow import agree

KEPT = "<bool[4] c = {1, 0, 1, 1}> { y = Compress<axis=0>(x, c) }"


def test_what_a_constant_condition_keeps_has_a_known_size() -> None:
    model = model_of(f"m (float[4] x) => (float[n] y) {KEPT}")
    loaded = load(model, CompileOptions(), OPERATORS)
    assert loaded.open_shapes is None
    assert loaded.graph.type(loaded.graph.outputs[0]).dims == (3,)
    agree(model, x=np.arange(4, dtype=np.float32))


def test_a_constant_condition_may_keep_rows_beside_an_open_axis() -> None:
    model = model_of(f"m (float[4,k] x) => (float[3,k] y) {KEPT}")
    loaded = opened(model, {"k": (1, 3)})
    shapes = loaded.open_shapes
    assert shapes is not None
    assert [shapes.inputs, loaded.graph.type(loaded.graph.outputs[0]).dims[1]] == [((None, 0),), 3]
