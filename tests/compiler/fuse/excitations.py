"""Random squeeze and excitation: a mean over positions, and two small products of it."""

from __future__ import annotations

from hypothesis import strategies as st

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch

ACTIVATIONS = ("Relu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh")


def excitation(
    channels: int,
    hidden: int,
    size: tuple[int, ...],
    columns: int = 0,
    batch: int = 1,
    squeeze: str = "GlobalAveragePool",
    acts: tuple[str, str] = ("Relu", "HardSigmoid"),
    bias: bool = True,
    before: str = "",
    after: str = "",
) -> Graph:
    """As mobile networks have it, between a depthwise convolution and the projection whose operand it scales.

    `before` and `after` are maps of what is squeezed, and of the squeezed row.
    """
    s = Sketch(channels + hidden, DType.F32)
    ones = (1,) * len(size)
    y = s("Conv", s.x(batch, channels, *size), s.normal(channels, 1, *ones), group=channels)
    squeezed = s(before, y) if before else y
    if squeeze == "GlobalAveragePool":
        z = s(squeeze, squeezed)
    else:
        z = s(squeeze, squeezed, axes=tuple(range(2, 2 + len(size))), keepdims=1)
    z = s(after, z) if after else z
    for outputs, inputs, act in ((hidden, channels, acts[0]), (columns or channels, hidden, acts[1])):
        z = s("Conv", z, s.normal(outputs, inputs, *ones), *([s.normal(outputs)] if bias else []))
        z = s(act, z) if act else z
    if columns in (0, channels):
        return s.graph(s("Conv", s("Mul", y, z), s.normal(8, channels, *ones)))
    return s.graph(s("Conv", s("Relu", y), s.normal(8, channels, *ones)), s("Conv", z, s.normal(4, columns, *ones)))


@st.composite
def excitations(draw: st.DrawFn) -> Graph:
    """Means, sums and sums of squares of few and many elements; odd numbers of channels; several images."""
    size = draw(st.sampled_from([(7, 7), (14, 9), (1, 5), (23, 20), (16,), (4, 3, 5)]))
    squeeze = draw(
        st.sampled_from(["GlobalAveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceSumSquare"])
    )
    return excitation(
        draw(st.sampled_from([4, 16, 24, 33, 72, 136])),
        draw(st.sampled_from([2, 6, 8, 18, 40])),
        size,
        draw(st.sampled_from([0, 0, 0, 10, 50])),
        draw(st.sampled_from([1, 1, 3])),
        squeeze,
        (draw(st.sampled_from(["", *ACTIVATIONS])), draw(st.sampled_from(["", *ACTIVATIONS]))),
        draw(st.booleans()),
        draw(st.sampled_from(["", "", "Relu"])),
        draw(st.sampled_from(["", "", "", "Tanh"])),
    )
