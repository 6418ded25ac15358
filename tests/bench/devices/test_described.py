"""The described captioner, small: what is predicted for it, beside what was published."""

from __future__ import annotations

from bench.devices.described import FOLDER, NAMES, PUBLISHED, captioner, row, table, varied
from compiler.contract.platform import open_platform


def test_a_small_captioner_is_placed_on_all_devices_and_the_table_has_both_columns() -> None:
    platform = open_platform(FOLDER / f"{NAMES[0]}.toml")
    graph = captioner({"hidden": 64, "vocabulary": 100, "layers": 1, "steps": 2, "size": 64})
    found = row("small", graph, platform, ("kernel",))
    busy = found["busy_ms"]
    assert found["predicted"].keys() == PUBLISHED.keys()
    assert found["predicted"]["latency_times"] > 1
    assert min(busy["tpu.0"], busy["tpu.1"]) > 0
    assert "| published | 932.2 | 23.9 | 39.0 | 59.0 | 55.0 |" in table([found])
    assert len({name for name, _ in varied(platform)}) == 10
