"""One artifact for several profiles is timed beside those for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import profiles
from compiler.devices.cpu.target import this_machine


@pytest.mark.skipif(this_machine().machine != "x86_64", reason="programs for x86 run on x86 alone")
def test_each_profile_that_runs_here_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tiny_cnn", "--budget", "0", "--rounds", "1", "--json", str(tmp_path / "rows.json")]
    assert profiles.main(words) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["profile"] for row in rows][-2:] == ["cpu:x86-64-v3", "cpu:x86-64-v2"]
    assert all(row["alone_mib"] < row["common_mib"] < 3 * row["alone_mib"] for row in rows)
    assert all(min(row["ms"], row["over_alone"], row["over_peer"], row["load_ms"]) > 0 for row in rows)
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny_cnn")]) == len(rows)


def test_a_network_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        profiles.main(["no_such_network"])
