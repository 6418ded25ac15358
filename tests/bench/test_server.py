from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from bench.server import empty
from tilewright.errors import UsageError


def test_the_data_folder_starts_empty_unless_a_server_uses_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "tilewright.db").touch()
    with (data / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="a `tilewright up` uses"):
            empty(data)
    assert (data / "tilewright.db").exists()
    empty(data)
    assert list(data.iterdir()) == []
