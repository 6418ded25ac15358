from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
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
