from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.models.run import ALL, DEFAULT, main
from bench.zoo import ZOO
from bench.zoo import build as network


def test_without_names_the_networks_of_the_literature_are_measured_and_the_giants_only_on_request() -> None:
    assert set(DEFAULT) < set(ALL) < {entry.name for entry in ZOO}
    assert {"resnet50", "squeezenet1_1"} <= set(DEFAULT)
    assert set(ALL) - set(DEFAULT) == {"nasnet_a_large", "randwire_large", "vit_base", "bert_base", "gpt2_small"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["alexnet"], "no network 'alexnet' in the zoo"),
        (["tiny_cnn", "--threads", "0"], "is not of numbers from 1 on"),
        (["tiny_cnn", "--rounds", "0"], "is not of numbers from 1 on"),
        (["tiny_cnn", "--precision", "fp8"], "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main([*arguments, "--peers", ""])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_a_peer_that_is_none_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tiny_cnn", "--peers", "torch", "--cache", str(tmp_path / "cache")]) == 2
    assert "torch is no peer" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_models_are_compiled_raced_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.onnx"
    file.write_bytes(network("tiny_inception").SerializeToString())
    results = tmp_path / "RESULTS.md"
    results.write_text("# Results\n")
    arguments = [str(file), "--peers", "onnxruntime", "--threads", "1", "--rounds", "1", "--budget", "0"]
    places = ["--cache", str(tmp_path / "cache"), "--json", str(tmp_path / "r.json"), "--markdown", str(results)]
    assert main([*arguments, *places]) == 0
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert (row["model"], row["threads"], row["precision"]) == ("mine", 1, "fp32")
    assert row["gflop"] == pytest.approx(0.001391, rel=1e-3)
    assert row["ratio_to_best"] == pytest.approx(row["ours_ms"] / row["peers"]["onnxruntime"], rel=0.5)
    assert 0 < row["max_rel_error"] < 1e-4
    assert 0 < row["errors"]["onnxruntime"] < 1e-4
    table = capsys.readouterr().out
    assert "| mine | 1 | 0.001391 |" in table
    written = results.read_text()
    assert written.startswith("# Results\n\n## ")
    assert "`python -m bench models" in written
    assert written.endswith(table)


def test_a_model_that_fails_makes_a_row_and_the_exit_status_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    places = ["--cache", str(tmp_path / "cache"), "--json", str(tmp_path / "r.json")]
    assert main([str(broken), "--peers", "", "--threads", "1", *places]) == 1
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert row["ours_ms"] is None
    assert row["problem"]
