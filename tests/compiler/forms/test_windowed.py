from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.forms.windowed import as_image
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Const, Expr, Load, Where, conjunction, inside
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

F32 = DType.F32
C, N = Axis("c", 3), Axis("n", 2)


def values(expr: Expr, axes: tuple[Axis, ...], x: np.ndarray) -> np.ndarray:
    """The expression at every point of the axes."""
    shape = tuple(axis.extent for axis in axes)
    store = Store("y", tuple(map(Index.of, axes)))
    block = Block((), (expr,), (store,))
    slots = (Slot("x", TensorType(F32, x.shape)),), (Slot("y", TensorType(F32, shape)),)
    (found,) = evaluate(Kernel("Map", *slots, (block,), (), axes), [x])
    return found


@st.composite
def windows(draw: st.DrawFn) -> tuple[Expr, tuple[Axis, ...], tuple[Axis, ...], tuple[int, ...]]:
    """A window's operand over n, c and one or two spatial axes, with its outputs, its taps and the shape it reads."""
    rank = draw(st.integers(1, 2))
    places, dims, outputs, taps = [], [], [], []
    for axis in range(rank):
        output, tap = Axis(f"o{axis}", draw(st.integers(1, 5))), Axis(f"t{axis}", draw(st.integers(1, 4)))
        stride, dilation, pad = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 3))
        places.append(Index.of(output) * stride + Index.of(tap) * dilation - pad)
        dims.append(max(places[-1].range[1] + 1 - draw(st.integers(0, 3)), 1))
        outputs.append(output)
        taps.append(tap)
    value: Expr = Load("x", (Index.of(N), Index.of(C), *places), F32)
    if draw(st.booleans()):
        value = Apply("max", (value, Const(0.1, F32)))
    guards = [inside(place, extent) for place, extent in zip(places, dims, strict=True)]
    guard = conjunction([part for part in guards if part is not None])
    if guard is not None:
        value = Where(guard, value, Const(0.0, F32))
    return value, (N, *outputs), (C, *taps), (N.extent, C.extent, *dims)


@settings(max_examples=80)
@given(windows(), st.integers(0, 2**16))
def test_the_image_at_a_swept_position_is_the_operand_at_every_output_and_tap_that_meet_there(
    window: tuple[Expr, tuple[Axis, ...], tuple[Axis, ...], tuple[int, ...]], seed: int
) -> None:
    value, outputs, taps, dims = window
    image = as_image(value, outputs, taps)
    assert image is not None
    x = np.random.default_rng(seed).uniform(-1, 1, dims).astype(np.float32)
    axes = (*outputs, *taps)
    places = {}
    for sweep in image.sweeps:
        assert (
            sweep.position.extent
            == (sweep.output.extent - 1) * sweep.stride + (sweep.tap.extent - 1) * sweep.dilation + 1
        )
        places[sweep.output] = Index.of(sweep.output) * sweep.stride + Index.of(sweep.tap) * sweep.dilation
    assert {axis for axis in image.value.axes if axis.extent > 1} <= {
        *(sweep.position for sweep in image.sweeps),
        *image.others,
    }
    back = image.value.substitute({sweep.position: places[sweep.output] for sweep in image.sweeps})
    np.testing.assert_array_equal(values(back, axes, x), values(value, axes, x))


def test_what_is_no_window_has_no_image() -> None:
    o, t, u = Axis("o", 4), Axis("t", 3), Axis("u", 2)
    twice = Load("x", (Index.of(o) + t + u,), F32)
    assert as_image(twice, (o,), (t, u)) is None
    apart = Apply("mul", (Load("x", (Index.of(o) + t,), F32), Load("x", (Index.of(t),), F32)))
    assert as_image(apart, (o,), (t,)) is None
    other = Apply("mul", (Load("x", (Index.of(o) + t,), F32), Load("x", (Index.of(o) * 2 + t,), F32)))
    assert as_image(other, (o,), (t,)) is None


def test_channels_and_batch_stay_as_they_were() -> None:
    o, t = Axis("o", 4), Axis("t", 3)
    image = as_image(Load("x", (Index.of(N), Index.of(C), Index.of(o) * 2 + t), F32), (N, o), (C, t))
    assert image is not None
    assert image.others == (N, C)
    assert str(image.value) == "x[n, c, ot]"
