from __future__ import annotations

from typing import Any

from bench.gpu.table import markdown

ROW: dict[str, Any] = {
    "network": "resnet50",
    "precision": "fp16",
    "ms": {"ours": 0.2, "graph": 0.4},
    "spread_ms": {"ours": [0.19, 0.21], "graph": [0.39, 0.41]},
    "best": "graph",
    "ratio": [0.5, 0.48, 0.52],
    "ratio_in_a_row": [0.6, 0.6, 0.6],
    "floor_ms": 0.01,
    "left_out": {"xla": "ImportError: No module\nnamed jax"},
    "compilation": {"kernels": 54},
}
LEFT = "| resnet50 | fp16 | 0.200 (0.190..0.210) | - | 0.400 (0.390..0.410) | - | - | - | - | graph |"


def test_a_row_holds_latency_ratios_kernels_and_the_part_of_the_floor() -> None:
    table = markdown({"resnet50 fp16": ROW})
    assert f"{LEFT} 0.500 (0.480..0.520) | 0.600 (0.600..0.600) | 54 | 5% |" in table
    assert "- resnet50 fp16, xla: ImportError: No module named jax" in table


def test_networks_that_failed_and_peers_alone_are_told() -> None:
    alone = {**ROW, "ms": {"graph": 0.4}, "ratio": None, "ratio_in_a_row": None, "compilation": {"problem": "x"}}
    failed = {"network": "bert_base", "precision": "tf32", "problem": "ended with\nstatus 1"}
    table = markdown({"a": alone, "b": failed})
    assert "| resnet50 | fp16 | - | - | 0.400 (0.390..0.410) | - | - | - | - | graph | - | - | - | - |" in table
    assert "Failed:\n\n- bert_base tf32: ended with status 1" in table
