from __future__ import annotations

from typing import Any

import pytest

from bench.rewrite.ablation import means
from bench.rewrite.table import ablated, counted


def counts(model: str, kernels: int, **layers: int) -> dict[str, Any]:
    peers = {
        peer: {"layers": count, "views": 2, "kinds": {"Conv": count, "Reshape": 2}} for peer, count in layers.items()
    }
    return {
        "model": model,
        "operators": 40,
        "nodes": 30,
        "kernels_before_fusion": 30,
        "kernels": kernels,
        "families": {"Conv+Relu": kernels},
        "peers": peers,
        "failed": {},
    }


def loss(model: str, without: str, ratio: float | None, *, same: bool = False, calm: bool = True) -> dict[str, Any]:
    run = None if same or ratio is None else 2.0
    return {
        "model": model,
        "threads": 1,
        "without": without,
        "same": same,
        "kernels": 10,
        "kernels_without": 10 if same else 14,
        "ms": run,
        "ms_without": run and run * (ratio or 0.0),
        "ratio": ratio,
        "ratio_interval": run and [0.9 * (ratio or 0.0), 1.1 * (ratio or 0.0)],
        "difference": 0.0,
        "rounds": 15,
        "discarded": 3,
        "calm": calm,
    }


def test_a_model_that_launches_more_than_the_leanest_peer_is_marked() -> None:
    peers = ("onnxruntime", "openvino")
    rows = [counts("few", 8, onnxruntime=12, openvino=8), counts("many", 9, onnxruntime=12, openvino=8)]
    text = counted(rows, peers)
    assert "| few | 40 | 30 | 30 | 8 | 12 (2) | 8 (2) | 1.00 |" in text
    assert "| many | 40 | 30 | 30 | 9 (*) | 12 (2) | 8 (2) | 1.12 |" in text
    assert "(*) 1 of 2 models launch more kernels" in text
    assert "executes the fewest: 1.061" in text, "the root of 1 times 9/8"


def test_a_peer_that_cannot_run_a_model_is_left_out_of_the_comparison_and_said() -> None:
    row = {**counts("odd", 9, onnxruntime=12), "failed": {"openvino": "no such layer"}}
    text = counted([row, {"model": "broken", "problem": "no such operator"}], ("onnxruntime", "openvino"))
    assert "| odd | 40 | 30 | 30 | 9 | 12 (2) | - | 0.75 |" in text
    assert "- openvino on odd: no such layer" in text
    assert "- broken: no such operator" in text
    assert "0 of 1 models" in text


def test_without_peers_our_kernels_are_counted_alone() -> None:
    assert "| alone | 40 | 30 | 30 | 9 | - |" in counted([counts("alone", 9)], ())


def test_what_was_raced_has_a_line_and_what_is_the_same_program_is_named() -> None:
    rows = [
        loss("net", "weights", 1.5),
        loss("net", "norms", 1.0, same=True),
        loss("net", "views", 1.2, calm=False),
        {**loss("net", "inline", None), "problem": "it does not fit"},
    ]
    text = ablated(rows)
    assert "| net | 1 | weights | 10 | 14 | 2.000 | 3.000 | 1.500 (1.350..1.650) | 15 of 18 |" in text
    assert "15 of 18 (*) |" in text
    assert "- net: norms" in text
    assert "- net without inline: it does not fit" in text
    assert "weights 1.500, views 1.200, norms 1.000" in text


def test_means_are_over_models_and_the_same_program_counts_one() -> None:
    rows = [loss("a", "weights", 4.0), loss("b", "weights", 1.0, same=True), loss("c", "weights", None)]
    assert means(rows) == {"weights": pytest.approx(2.0)}
