from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.measure.held import grown, resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_memory_that_is_written_to_is_resident() -> None:
    before = resident_bytes()
    assert before is not None
    held = np.ones(64 << 20, np.uint8)
    more = grown(before)
    assert more is not None
    assert more >= held.nbytes * 9 // 10


def test_where_the_system_does_not_say_it_is_unknown(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "statm") is None
    (tmp_path / "statm").write_text("7\n")
    assert resident_bytes(tmp_path / "statm") is None
    assert grown(100, tmp_path / "statm") is None
    (tmp_path / "statm").write_text("9 2 1 1 0 1 0\n")
    assert grown(None, tmp_path / "statm") is None
    assert grown(1 << 60, tmp_path / "statm") == 0
