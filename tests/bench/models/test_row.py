from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.cache import Compiled, Expected
from bench.models.row import Row, means
from bench.models.table import markdown
from bench.race.race import Race
from compiler.ir.plans.lanes import Handover

NEAR, FAR = Handover.of(60.0), Handover.of(200.0)

REPORT = {"phase_seconds": {"load": 1.0, "tile": 2.0}, "records_measured": 7, "kernels": 3}
REPORTED = ("model", "threads", "precision", "gflop", "ours_ms", "peers", "ratio_to_best", "max_rel_error")


def row(*, gflop: float | None = 1.0, ours: float = 1.0, calm: bool = True) -> Row:
    """Ours takes 10 ms, one peer 20 ms, another 12.5 ms, on two cores of 100 GFLOP/s."""
    seconds = {"tilewright": 0.01, "onnxruntime": 0.02, "openvino": 0.0125}
    values = {"tilewright": ours, "onnxruntime": 2.0, "openvino": 1.5}
    race = Race(
        2,
        {name: ((one,), (one, one), (one,)) for name, one in seconds.items()},
        {name: {"y": np.array([value, 0.0])} for name, value in values.items()},
        discarded=1,
        calm=calm,
        peak=2e11,
        handovers=((Handover.of(50.0), NEAR), (NEAR, NEAR), (NEAR, Handover.of(70.0))),
    )
    expected = Expected({}, {"y": np.array([2.0, 0.0])})
    return Row("net", "fp32", gflop, Compiled(Path("a.tw"), REPORT), race, ("onnxruntime", "openvino"), expected)


def test_a_row_tells_what_was_asked_for_and_how_sure_it_is() -> None:
    reported = json.loads(json.dumps(row().to_json()))
    assert {name: reported[name] for name in REPORTED} == {
        "model": "net",
        "threads": 2,
        "precision": "fp32",
        "gflop": 1.0,
        "ours_ms": pytest.approx(10),
        "peers": {"onnxruntime": pytest.approx(20), "openvino": pytest.approx(12.5)},
        "ratio_to_best": pytest.approx(0.8),
        "max_rel_error": 0.5,
    }
    assert reported["best"] == "openvino"
    assert reported["ratio_interval"] == pytest.approx([0.8, 0.8])
    assert reported["errors"] == {"tilewright": 0.5, "onnxruntime": 0.0, "openvino": 0.25}
    assert reported["of_peak"] == pytest.approx(0.5), "1 GFLOP in 10 ms is 100 of 200 GFLOP/s"
    assert (reported["state"], reported["handover_ns"]) == ("near", 60.0)
    assert (reported["rounds"], reported["discarded"], reported["compile_s"]) == (3, 1, 3.0)


def test_what_engines_compute_from_bytes_is_a_table_of_its_own() -> None:
    counted = replace(row(), in_bytes={"tilewright": (3, 3), "onnxruntime": (2, 3)}).to_json()
    assert json.loads(json.dumps(counted))["products_in_bytes"] == {"tilewright": [3, 3], "onnxruntime": [2, 3]}
    assert "| net | 2 of 3 | 3 of 3 |" in markdown([counted], ["onnxruntime", "openvino"])
    assert "products from bytes" not in markdown([row().to_json()], ["onnxruntime", "openvino"])


def moving(states: Sequence[tuple[Handover, Handover]]) -> Row:
    """Ours takes 10 ms and the peers 12.5 and 20 while the cores are near.

    In far rounds all take twice as long but for the slower peer.
    """
    far = [both == (FAR, FAR) for both in states]
    seconds = {
        "tilewright": tuple((0.02 if is_far else 0.01,) for is_far in far),
        "onnxruntime": tuple((0.02,) for _ in far),
        "openvino": tuple((0.025 if is_far else 0.0125,) for is_far in far),
    }
    return replace(row(), race=replace(row().race, seconds=seconds, handovers=tuple(states)))


def test_the_ratio_is_told_for_each_state_of_the_cores_by_the_best_peer_there() -> None:
    reported = json.loads(json.dumps(moving([(NEAR, NEAR)] * 5 + [(FAR, FAR)] * 4 + [(NEAR, FAR)] * 2).to_json()))
    assert (reported["state"], reported["rounds"], reported["rounds_near"], reported["rounds_far"]) == (
        "moved",
        11,
        5,
        4,
    )
    assert (reported["ratio_near"], reported["best_near"]) == (pytest.approx(0.8), "openvino")
    assert reported["ratio_near_interval"] == pytest.approx([0.8, 0.8])
    assert (reported["ratio_far"], reported["best_far"]) == (pytest.approx(1.0), "onnxruntime")
    assert reported["ratio_far_interval"] is None, "four rounds do not say how sure they are"
    text = markdown([reported], ["onnxruntime", "openvino"])
    assert "| near rounds | far rounds |" in text
    assert "| 0.800 (0.800..0.800) openvino in 5 | 1.000 onnxruntime in 4 |" in text
    assert "T2 in near rounds: 0.800, T2 in far rounds: 1.000." in text


def test_a_state_in_which_no_round_was_run_has_no_ratio() -> None:
    reported = moving([(NEAR, NEAR), (NEAR, FAR)]).to_json()
    assert (reported["rounds_far"], reported["ratio_far"], reported["best_far"]) == (0, None, None)
    assert "| - |" in markdown([reported], ["onnxruntime", "openvino"])


def test_a_race_without_peers_has_no_ratio_in_any_state() -> None:
    reported = replace(moving([(NEAR, NEAR)] * 5), peers=()).to_json()
    assert (reported["ratio_near"], reported["ratio_near_interval"], reported["rounds_near"]) == (None, None, 5)


def test_on_one_thread_the_table_tells_no_states() -> None:
    one = replace(row(), race=replace(row().race, threads=1, handovers=()))
    assert "rounds |" in (text := markdown([one.to_json()], ["onnxruntime", "openvino"]))
    assert "near rounds" not in text


def test_a_model_that_cannot_be_counted_has_no_part_of_the_peak() -> None:
    assert row(gflop=None).of_peak is None


def test_an_error_without_limit_is_valid_json() -> None:
    reported = row(ours=float("nan")).to_json()
    assert reported["max_rel_error"] is None
    json.dumps(reported, allow_nan=False)


def test_means_are_geometric_and_leave_out_what_failed() -> None:
    rows = [{"threads": 1, "ratio_to_best": ratio} for ratio in (0.5, 2.0, None)]
    assert means([*rows, {"threads": 2, "ratio_to_best": 0.7}]) == {1: pytest.approx(1.0), 2: pytest.approx(0.7)}


def test_the_table_has_a_line_for_each_row_and_says_what_failed_and_what_was_disturbed() -> None:
    failed = {"model": "broken", "threads": 1, "ratio_to_best": None, "problem": "it does not compile"}
    text = markdown([row().to_json(), row(gflop=None, calm=False).to_json(), failed], ["onnxruntime", "openvino"])
    head, rule, first, second, *_ = text.splitlines()
    assert head.startswith("| model | T | GFLOP | ours ms | onnxruntime ms | openvino ms | ours / best |")
    assert len({line.count("|") for line in (head, rule, first, second)}) == 1
    assert "| net | 2 | 1 | 10.000 (10.000..10.000) | 20.000 (20.000..20.000) | 12.500" in first
    assert (
        "| 0.800 (0.800..0.800) | openvino | 50% | near 60 ns | 0.800 openvino in 3 | - | 5.0e-01 | 3.0 | 3 of 4 |"
        in first
    )
    assert second.endswith("| 3 of 4 (*) |")
    assert "(*) Others used the cores in every round." in text
    assert "Geometric mean of ours over the best peer's: T2: 0.800, T2 in near rounds: 0.800." in text
    assert "- broken, T1: it does not compile" in text
