from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.packing import Panels


@settings(max_examples=50)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 20), st.sampled_from([4, 8]), st.booleans()
)
def test_panels_hold_each_batch_column_by_column_and_zeros_beyond(
    batches: int, taps: int, channels: int, columns: int, panel: int, turned: bool
) -> None:
    constant = np.random.default_rng(0).uniform(-1, 1, (batches, columns, channels, taps))
    each = columns * channels * taps
    starts = tuple(batch * each + (taps - 1 if turned else 0) for batch in range(batches))
    source = ((taps, -1 if turned else 1), (channels, taps), (columns, channels * taps))
    packing = Panels(starts, taps * channels, columns, panel, source)
    packed = packing.pack(constant)
    assert packed.size == packing.elements
    matrix = (constant[..., ::-1] if turned else constant).transpose(0, 3, 2, 1).reshape(batches, -1, columns)
    wide = packed.transpose(0, 2, 1, 3).reshape(batches, taps * channels, -1)
    np.testing.assert_array_equal(wide[:, :, :columns], matrix.astype(np.float32))
    assert not wide[:, :, columns:].any()
