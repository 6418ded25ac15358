"""Positions that data decide lie within what they are of: no samples are asked for."""

from __future__ import annotations

import pytest

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.ranges import derive
from tests.compiler.frontend.open.at_sizes import model_of

CHOSEN = """m (float[1,9,4] b, float[1,3,9] s, float[{rows},4] t) => (float[n,1,4] y)
<int64 most = {{4}}, int64[1] two = {{2}}> {{
    c = NonMaxSuppression(b, s, most) i = Gather<axis=1>(c, two) y = Gather(t, i)
}}"""
KEPT = """m (float[9] x, float[{rows},4] t) => (float[n,4] y) <int64[1] one = {{1}}> {{
    p = NonZero(x) r = Transpose(p) i = Squeeze(r, one) y = Gather(t, i)
}}"""
FIRST = "m (float[9] x, float[{rows},4] t) => (float[n,4] y) {{ z, i = Unique(x) y = Gather(t, i) }}"


@pytest.mark.parametrize("text", [CHOSEN, KEPT, FIRST], ids=["chosen", "kept", "first"])
@pytest.mark.parametrize(("rows", "outside"), [(9, 0), (8, 1)])
def test_positions_are_known_to_lie_among_what_they_are_of(text: str, rows: int, outside: int) -> None:
    graph = load(model_of(text.format(rows=rows)), CompileOptions(), OPERATORS).graph
    assert len(derive(graph).unproven) == outside
