"""What is predicted of two devices of different kinds: beside each alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.devices.predicted import NETWORKS, can_predict, row, table_head, table_row
from bench.devices.run import main
from bench.zoo import entry

GPU = ["cpu", "cuda:sm_90"]
NPU = ["cpu:cortex-a53", "npu:ethos-u55-64"]


@pytest.mark.parametrize("devices", [GPU, NPU], ids=["gpu", "npu"])
def test_both_devices_are_never_slower_than_the_better_one(devices: list[str], tmp_path: Path) -> None:
    if devices is NPU:
        pytest.importorskip("ethosu.regor")
    found = row("tiny_cnn", devices, tmp_path)
    alone = found["alone_s"]
    assert 0 < found["period_s"] <= min(alone)
    assert found["period_s"] <= found["latency_s"] <= min(alone)
    assert max(found["busy"]) == pytest.approx(1.0)
    assert len(table_row(found).split("|")) == len(table_head(devices)[0].split("|")) == 15


def test_a_row_says_where_the_cpu_has_a_share_of_the_accelerators_figure() -> None:
    found = {"network": "n", "devices": NPU, "alone_s": [4e-3, 1e-3], "is_alone": True, "period_s": 1e-3}
    found |= {"latency_s": 9e-4, "busy": [0.5, 1.0], "parts": [(0, 3), (1, 4)], "scheduler": "s", "processor_s": 2.0}
    shown = "| n | 250.0 | 1000.0 | 1000.0 | 1250.0 | 0.80 | 1.00 | 50%, 100% "
    shown += "| 1.000 | 0.900 | 3 on cpu + 4 on other | s | 2 |"
    assert table_row(found) == shown
    shown = shown.replace("1000.0 | 1000.0 | 1250.0 | 0.80", "1000.0* | 1000.0 |  | ")
    assert table_row({**found, "is_alone": False}) == shown
    many = [(0, 3), (1, 4), (0, 1), (1, 2), (0, 1)]
    assert "| 5 parts: 5 on cpu, 6 on other |" in table_row({**found, "parts": many})


def test_devices_are_a_cpu_and_another_kind_by_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert [can_predict(one) for one in (GPU, NPU)] == [True, True]
    for wrong in ("cpu", "cpu:0,cpu:1", "cpu,npu:ethos-u55-64", "cpu:cortex-a53,cuda:sm_90", "cpu,cuda:0", "cpu,tpu"):
        with pytest.raises(SystemExit):
            main(["--predicted", "--devices", wrong])
        assert "of zoo networks on two devices that are not here" in capsys.readouterr().err
    assert all(entry(name) for name in NETWORKS)
