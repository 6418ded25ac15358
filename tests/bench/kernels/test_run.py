from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from bench.engines.catalogue import DRIVERS, OURS
from bench.engines.driver import Layer
from bench.gpu import check
from bench.kernels import run
from bench.kernels.profile import Profile
from bench.kernels.row import rows_of
from bench.kernels.run import main
from bench.kernels.sample import build
from bench.kernels.table import by_group, most_lost
from bench.zoo.builder import GraphBuilder
from bench.zoo.flops import gflop
from bench.zoo.operators import SAMPLES


def two_convolutions() -> onnx.ModelProto:
    g = GraphBuilder("g")
    g.output("y", g.conv(g.relu(g.conv(g.input("x", (1, 4, 8, 8)), 4, 3)), 4, 1))
    return g.finish()


def test_a_row_brings_our_kernels_and_the_peers_layers_for_the_same_nodes_together() -> None:
    calls = [
        {"family": "Conv+Relu", "tile": "contraction", "flops": 20_000},
        {"family": "Pack", "tile": "loops", "flops": 0},
        {"family": "Conv", "tile": "contraction", "flops": 2_000},
    ]
    ours = [
        Layer("Conv+Relu", ("node.conv_0", "node.relu_0"), 3e-6),
        Layer("Pack", ("node.conv_1",), 1e-6),
        Layer("Conv", ("node.conv_1",), 1e-6),
    ]
    peer = [Layer("Reorder", (), 1e-6), Layer("Conv", ("relu_0_nchwc",), 1e-6), Layer("Conv", ("y",), 4e-6)]
    slower = [Layer(one.kind, one.names, 3 * one.seconds) for one in peer]
    rows = rows_of(two_convolutions(), calls, Profile({OURS: (tuple(ours),), "peer": (peer, slower, peer)}, 1e10))
    assert [row.what for row in rows] == ["Conv 3x3 4->4, 8x8 -> 8x8 + Relu", "Conv 1x1 4->4, 8x8 -> 8x8"]
    assert [row.us for row in rows] == pytest.approx([3, 2])
    assert [row.peers["peer"] for row in rows] == pytest.approx([2, 4]), "the median of the rounds"
    assert [row.lost_us for row in rows] == pytest.approx([1, -2])
    assert [row.share for row in rows] == pytest.approx([0.6, 0.4])
    first = rows[0].kernels[0]
    assert first.gflop == pytest.approx(2e-5)
    assert first.of_peak == pytest.approx(20_000 / 3e-6 / 1e10)
    text = by_group(rows, ["peer"])
    assert len(text.splitlines()) == 2 + 3 + 1
    assert "| all |  |  |  | 5.0 |" in text
    assert most_lost(rows).splitlines()[2:] == ["- 1.0 us: Conv 3x3 4->4, 8x8 -> 8x8 + Relu (3.0 us against 2.0)"]


def test_there_are_ten_samples_of_one_operator_each(tmp_path: Path) -> None:
    assert len({one.name for one in SAMPLES}) == len(SAMPLES) == 10
    for one in SAMPLES:
        model = onnx.load(build(one, tmp_path).file)
        assert len(model.graph.node) == 1, one.name
        assert 0.005 < gflop(model) < 2, one.name


@pytest.mark.parametrize("arguments", [[], ["tiny_cnn", "--sample"]])
def test_either_models_or_samples_are_asked_for(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_samples_for_a_gpu_are_the_part_of_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def played(arguments: list[str]) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr(check, "main", played)
    assert main(["--sample", "--target", "cuda", "--budget", "3"]) == 0
    assert asked == [["kernels", "--budget", "30.0"]]
    with pytest.raises(SystemExit):
        main(["resnet18", "--target", "cuda"])


def test_every_default_peer_tells_its_layers() -> None:
    assert {known.name for known in DRIVERS if known.layers} >= {OURS, "onnxruntime", "openvino"}


def test_the_kernels_of_a_model_are_told_beside_the_layers_of_a_peer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tiny_cnn", "--peers", "onnxruntime", "--rounds", "1", "--budget", "0"]
    assert main([*arguments, "--cache", str(tmp_path / "cache"), "--json", str(tmp_path / "k.json")]) == 0
    rows = json.loads((tmp_path / "k.json").read_text())
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["kernels"] or row["peers_us"]["onnxruntime"] for row in rows)
    assert capsys.readouterr().out.startswith("### tiny_cnn\n\n| what | our kernel |")


def test_a_sample_is_raced_and_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = min(SAMPLES, key=lambda one: gflop(onnx.load(build(one, tmp_path).file)))
    monkeypatch.setattr(run, "SAMPLES", (smallest,))
    arguments = ["--sample", "--peers", "onnxruntime", "--rounds", "1", "--budget", "0"]
    assert main([*arguments, "--cache", str(tmp_path / "cache"), "--json", str(tmp_path / "s.json")]) == 0
    (reported,) = json.loads((tmp_path / "s.json").read_text())
    assert reported["name"] == smallest.name
    assert reported["alone_us"][OURS] > 0
    assert reported["of_peak"] > 0
    assert reported["error"] < 1e-4
    assert "| Conv 3x3 g144 144->144, 56x56 -> 56x56 |" in capsys.readouterr().out
