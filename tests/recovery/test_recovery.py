"""What is restored is what there was, to the row and the byte, and is migrated with its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recovery.__main__ import places, recover
from tests.servers import Missing


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_backup_brings_back_every_row_and_every_blob(database: str, tmp_path: Path) -> None:
    try:
        with places(database, tmp_path) as (before, after):
            found = recover(before, after, 8, 1000)
    except Missing as reason:
        pytest.skip(str(reason))
    assert found["jobs"] == 8
    assert found["blob_bytes"] > 8 * 1000
