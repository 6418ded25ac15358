from __future__ import annotations

import numpy as np

from bench.quantize.subjects import EDGE, GLYPHS, PADDING, digits, ends


def test_a_file_is_its_two_ends_without_the_space_around_it() -> None:
    short = ends(b"  \n abc \n\n")
    assert short[:3].tolist() == [*b"abc"]
    assert set(short[6:EDGE].tolist()) == {PADDING}
    assert short[-3:].tolist() == [*b"abc"]
    long = bytes(range(33, 126)) * 60
    made = ends(b" " + long + b"\n")
    assert bytes(made[:EDGE].astype(np.uint8)) == long[:EDGE]
    assert bytes(made[EDGE:].astype(np.uint8)) == long[-EDGE:]
    assert set(ends(b"   ").tolist()) == {PADDING}


def test_digits_are_drawn_alike_for_a_seed_and_fill_the_middle() -> None:
    drawn = digits(20, seed=3)
    assert drawn.shape == (20, 1, 28, 28)
    assert np.array_equal(drawn, digits(20, seed=3))
    assert drawn.min() >= 0
    assert 150 < drawn.max() <= 255
    assert (drawn[:, :, 3:25, 5:23].sum(axis=(1, 2, 3)) > 0.9 * drawn.sum(axis=(1, 2, 3))).all()
    assert len({drawn[number].tobytes() for number in range(20)}) == 20
    assert len(set(GLYPHS)) == 10
