from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.gpu.records import file_name, read, shipped, write


def record(workload: str, seconds: float, **more: Any) -> dict[str, Any]:
    variant = {"tile": "mma", **more}
    return {"kind": "kernel", "workload": workload, "hardware": "h", "variant": variant, "seconds": seconds}


def test_the_last_measurement_of_each_thing_is_shipped_in_an_order_of_its_own() -> None:
    one, again, other = record("a", 1.0), record("a", 2.0), record("a", 3.0, stages=4)
    last = record("b", 4.0)
    assert shipped([last, one, other, again]) == shipped([one, again, other, last])
    assert [entry["seconds"] for entry in shipped([last, one, other, again])] == [3.0, 2.0, 4.0]


def test_a_file_holds_one_record_a_line_and_half_a_line_counts_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "records" / "gpu.jsonl"
    assert read(file) == []
    write(file, [record("a", 1.0), record("b", 2.0)])
    with file.open("a") as opened:
        opened.write(json.dumps(record("c", 3.0))[:20])
    assert read(file) == [record("a", 1.0), record("b", 2.0)]


def test_a_file_is_named_after_the_product() -> None:
    assert file_name("NVIDIA H200") == "nvidia_h200.jsonl"
    assert file_name("NVIDIA A100-SXM4-40GB") == "nvidia_a100_sxm4_40gb.jsonl"
