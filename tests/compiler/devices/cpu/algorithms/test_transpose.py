from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.loops.transpose import PLANES as PLANES_OF
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, Library, array_of, check, draws
from tests.parse import parse_kernel

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""
TRANSPOSED = {
    "a transposition": """
kernel Transpose(in x: f32[{n}, {a}, {b}]; out y: f32[{n}, {b}, {a}])
  for n:{n}, b:{b}, a:{a}
    y[n, b, a] = x[n, a, b]
""",
    "a map of a transposition": """
kernel Map(in x: f32[{n}, {a}, {b}], in s: f32[{b}]; temp t: f32[{n}, {a}, {b}]; out y: f32[{n}, {b}, {a}])
  for n:{n}, b:{b}, a:{a}
    t[n, a, b] = mul(x[n, a, b], s[b])
    y[n, b, a] = max(t[n, a, b], 0.0:f32)
""",
    "channels of two groups shuffled": """
kernel Shuffle(in x: f32[{n}, {z}, {b}]; out y: f32[{n}, {bz}])
  for n:{n}, c:{bz}
    y[n, c] = add(x[n, (c)%{z}, (c)//{z}], 1.0:f32)
""",
    "channels split into groups again": """
kernel Shuffle(in x: f32[{n}, {bz}]; out y: f32[{n}, {z}, {b}])
  for n:{n}, g:{z}, c:{b}
    y[n, g, c] = x[n, {z}*c + g]
""",
}


def case_of(text: str, n: int, z: int, a: int, b: int, seed: int = 0, cuts: tuple[float, ...] = ()) -> Case:
    kernel = parse_kernel(text.format(n=n, a=a, b=b, z=z, bz=b * z))
    random = np.random.default_rng(seed)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return Case(kernel, buffers, tuple(array_of(slot.type, random) for slot in kernel.inputs), cuts=cuts)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n, z = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([2, 2, 4, 8, 3]))
    a, b = (draw(st.sampled_from([2, 4, 7, 8, 15, 16, 17, 33, 40])) for _ in "ab")
    text = TRANSPOSED[draw(st.sampled_from(sorted(TRANSPOSED)))]
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    return case_of(text, n, z, a, b, draw(st.integers(0, 999)), cuts)


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_transposed_maps_mean_what_they_say(lanes: int) -> None:
    wide = [case_of(text, 2, z, 40, 40) for text in TRANSPOSED.values() for z in (2, 4)]
    drawn = [*wide, *draws(cases(), 90)]
    library = Library.of(drawn, TARGETS[lanes], "-O1")
    for number, case in enumerate(drawn):
        for got, want in zip(library.run(number, case), evaluate(case.kernel, case.inputs), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{case}\n{library.lowered[number].text}")
    texts = [lowered.text for lowered in library.lowered[: len(wide)]]
    assert any("tw_transpose(" in text for text in texts)
    assert any("tw_zip(" in text for text in texts)


PLANES = """
kernel Quantize(in x: f32[2, 3, 2491]; out y: u8[2, 2491, 3])
  for n:2, p:2491, c:3
    y[n, p, c] = saturate(add(round(div(x[n, c, p], 0.01:f32)), 128.0:f32)):u8
"""


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_three_planes_that_are_quantised_are_interleaved_as_bytes(lanes: int) -> None:
    """A plane is a stretch and a part of one, whose end is no whole vector."""
    case = replace(case_of(PLANES, 0, 0, 0, 0), cuts=(0.4,))
    lowered = lower("k0_planes", case.workload, case.tile, TARGETS[lanes])
    assert lowered.text.count("tw_bytes_threes(") == 2
    assert lowered.tiles == 4
    check([case], TARGETS[lanes], "-O1")


SHUFFLED = """
kernel Shuffle(in x: {x}[3, {z}, {b}]; out y: {y}[3, {bz}])
  for n:3, c:{bz}
    y[n, c] = {value}
"""
VALUES = (
    "saturate(add(round(mul(cast(sub(cast({at}):i32, 7:i32)):f32, 0.75:f32)), 3.0:f32)):{y}",
    "saturate({at}):{y}",
)


def shuffled(x: DType, y: DType, z: int, b: int, value: str) -> tuple[Case, np.ndarray]:
    """Channels of z groups of b bytes shuffled into one another, and what becomes of them by numpy."""
    text = value.format(at=f"x[n, (c)%{z}, (c)//{z}]", y=y)
    kernel = parse_kernel(SHUFFLED.format(x=x, y=y, z=z, b=b, bz=b * z, value=text))
    limits, ends = np.iinfo(x.numpy), np.iinfo(y.numpy)
    array = np.random.default_rng(b).integers(limits.min, limits.max + 1, (3, z, b)).astype(x.numpy)
    turned = array.astype(np.int64).transpose(0, 2, 1).reshape(3, b * z)
    whole = np.rint(0.75 * (turned - 7)) + 3 if value is VALUES[0] else turned
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return Case(kernel, buffers, (array,), cuts=(0.5,)), np.asarray(np.clip(whole, ends.min, ends.max), y.numpy)


def judge_shuffled(target: CpuTarget) -> None:
    """Bytes of groups are interleaved, and are what numpy has."""
    types = [(DType.U8, DType.U8), (DType.I8, DType.I8), (DType.U8, DType.I8), (DType.I8, DType.U8)]
    drawn = [shuffled(*types[(z + b) % 4], z, b, value) for z in (2, 3, 4, 8) for b in (5, 16, 29) for value in VALUES]
    library = Library.of([case for case, _ in drawn], target, "-O1")
    for number, (case, want) in enumerate(drawn):
        (got,) = library.run(number, case)
        np.testing.assert_array_equal(got, want, err_msg=f"{case}\n{library.lowered[number].text}")
        assert any(f"tw_bytes_{name}(" in library.lowered[number].text for name in PLANES_OF.values())


@pytest.mark.parametrize("lanes", sorted(TARGETS))
def test_bytes_of_two_three_four_and_eight_groups_are_interleaved(lanes: int) -> None:
    judge_shuffled(TARGETS[lanes])


def test_bytes_of_five_groups_are_moved_one_by_one() -> None:
    case, want = shuffled(DType.U8, DType.U8, 5, 16, VALUES[0])
    library = Library.of([case], TARGETS[max(TARGETS)], "-O1")
    assert "tw_bytes_" not in library.lowered[0].text
    np.testing.assert_array_equal(library.run(0, case)[0], want)
