"""Where taps read an image that is cut into phases, against positions counted one by one."""

from __future__ import annotations

from itertools import product

from compiler.forms.window_rows import Side
from compiler.ir.index import Axis
from tests.seeds import each

OUTPUTS = 7


@each([*product(range(1, 6), range(1, 4), range(1, 5))], "case")
def test_a_tap_reads_neighbouring_pixels_of_one_phase_for_neighbouring_outputs(case: tuple[int, int, int]) -> None:
    stride, dilation, taps = case
    side = Side(Axis("x", OUTPUTS), Axis("p", 1 << 10), Axis("k", taps), stride, dilation)
    read: dict[int, set[int]] = {}
    for tap, output in product(range(taps), range(OUTPUTS)):
        place, phase = divmod(output * stride + tap * dilation, stride)
        assert (phase, place) == (side.phase(tap), output + side.place(tap))
        read.setdefault(phase, set()).add(place)
    assert side.phases == tuple(sorted(read))
    for phase, places in read.items():
        assert max(places) + 1 == OUTPUTS - 1 + side.reach(phase)
    assert side.most == max(side.reach(phase) for phase in read)


def test_without_a_tap_each_output_reads_its_own_pixel() -> None:
    side = Side(Axis("x", OUTPUTS), Axis("x", OUTPUTS))
    assert (side.phases, side.place(0), side.most) == ((0,), 0, 1)
