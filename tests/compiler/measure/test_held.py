from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compiler.measure.held import grown, resident_bytes
from tests.servers import GUARD_S

WRITES = """
from compiler.measure.held import grown, resident_bytes
before = resident_bytes()
held = bytearray(b"1") * (64 << 20)
print(len(held), grown(before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_memory_that_is_written_to_is_resident() -> None:
    # In a process of its own: this one may give other memory back at any time, which the figure counts too.
    ran = subprocess.run([sys.executable, "-c", WRITES], check=True, capture_output=True, text=True, timeout=GUARD_S)
    written, more = map(int, ran.stdout.split())
    assert more >= written * 9 // 10


def test_where_the_system_does_not_say_it_is_unknown(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "statm") is None
    (tmp_path / "statm").write_text("7\n")
    assert resident_bytes(tmp_path / "statm") is None
    assert grown(100, tmp_path / "statm") is None
    (tmp_path / "statm").write_text("9 2 1 1 0 1 0\n")
    assert grown(None, tmp_path / "statm") is None
    assert grown(1 << 60, tmp_path / "statm") == 0
