from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

from bench.real import judge as judging
from bench.real import run as running
from bench.real.judge import Verdict, distance_of, judge
from bench.real.run import files_of, judged, main, table


def written(folder: Path, name: str, graph: str) -> Path:
    file = folder / f"{name}.onnx"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> m {graph}')
    file.write_bytes(model.SerializeToString())
    return file


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose indices have to fit what they index, which is as large as another input says."""
    graph = "(float[1,rows,4] table, int64[points] i) => (float[1,points,4] y) { y = Gather<axis=1>(table, i) }"
    return written(tmp_path_factory.mktemp("models"), "looked_up", graph)


def test_a_model_is_compiled_as_it_is_and_compared_at_several_sizes(looked_up: Path) -> None:
    verdict = judge(looked_up, 0.0)
    assert (verdict.status, verdict.distance) == ("agrees", 0.0), verdict.reason
    assert verdict.sizes == 6
    assert "rows=1..512" in verdict.took
    assert verdict.seconds > 0
    assert verdict.bytes > 0


def test_what_nobody_knows_is_refused_with_the_reason(tmp_path: Path) -> None:
    verdict = judge(written(tmp_path, "strange", "(float[n,2] x) => (float[n,2] y) { y = Mystery(x) }"), 0.0)
    assert (verdict.status, verdict.reason.partition(":")[0]) == ("refused", "unsupported_model")
    assert "Mystery" in verdict.reason


class Peer:
    """Runs a model as ONNX Runtime's sessions do, and gives the wrong values."""

    def get_outputs(self) -> list[Any]:
        return [type("Named", (), {"name": "y"})]

    def get_inputs(self) -> list[Any]:
        return [type("Named", (), {"name": "x"})]

    def run(self, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [inputs["x"] + 1]


def test_other_values_differ_and_a_model_that_the_peer_does_not_load_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "plain", "(float[1,2] x) => (float[1,2] y) { y = Neg(x) }")
    monkeypatch.setattr(judging, "single_threaded", lambda _: Peer())
    verdict = judge(file, 0.0)
    assert verdict.status == "differs"
    assert "from ONNX Runtime at its shapes" in verdict.reason
    monkeypatch.setattr(judging, "single_threaded", lambda _: json.loads("nothing"))
    assert judge(file, 0.0).status == "alone"


def test_distances_are_relative_to_the_largest_value() -> None:
    right = np.array([1.0, -4.0, np.nan, np.inf])
    assert distance_of(right, np.array([1.5, -4.0, np.nan, np.inf])) == 0.125
    assert distance_of(right, np.array([1.0, -4.0, 0.0, np.inf])) == float("inf")
    assert distance_of(right[:2], right[:1]) == float("inf")
    assert distance_of(np.array([1e-9]), np.array([2e-9])) == pytest.approx(1e-6)
    assert distance_of(np.array(["a"]), np.array(["b"], object)) == float("inf")
    assert distance_of(np.zeros(0), np.zeros(0)) == 0


def test_a_process_that_takes_too_long_is_ended(looked_up: Path) -> None:
    verdict = judged(looked_up, 0.0, 0.0)
    assert (verdict.status, verdict.reason) == ("crashed", "it took longer than 0 s")


def test_files_are_found_in_folders_and_the_table_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inner").mkdir()
    for name, size in (("inner/large.onnx", 9), ("small.onnx", 3), ("other.txt", 1)):
        (tmp_path / name).write_bytes(bytes(size))
    assert [file.name for file in files_of([tmp_path])] == ["small.onnx", "large.onnx"]

    def verdict(file: Path, budget_s: float, limit_s: float) -> Verdict:
        return Verdict(file.stem, "agrees" if file.stem == "small" else "refused", "no | rule")

    monkeypatch.setattr(running, "judged", verdict)
    kept = tmp_path / "rows.json"
    assert main([str(tmp_path), "--json", str(kept)]) == 1
    assert [row["status"] for row in json.loads(kept.read_text())] == ["agrees", "refused"]
    assert "2 models: 1 agrees, 1 refused." in capsys.readouterr().out
    assert main([str(tmp_path), "--only", "small"]) == 0
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--only", "nothing"])


def test_a_row_has_what_it_took_and_no_bar_of_its_own() -> None:
    text = table([Verdict("m", "agrees", "a | b", "float32[n=1..4]", 6, 1.5e-6, 2.5, 130_000_000)])
    assert "| m | agrees | float32[n=1..4] | 6 | 1.5e-06 | 2.5 | 130 | a / b |" in text
