from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.rewrite.ablation import all_names
from bench.rewrite.run import ABLATED, COUNTED, main
from bench.zoo import build


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["alexnet"], "no network 'alexnet'"), (["tiny_cnn", "--threads", "0"], "is not of numbers from 1 on")],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main([*arguments, "--peers", ""])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_a_name_that_is_neither_rule_nor_step_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tiny_cnn", "--peers", "", "--without", "magic"]) == 2
    said = capsys.readouterr().err
    assert "'magic'" in said
    assert all(name in said for name in all_names())


def test_without_names_all_networks_are_counted_but_those_whose_weights_fill_the_memory() -> None:
    assert {"nasnet_a_large", "gtcrn"} <= set(COUNTED)
    assert not {"gpt2_small", "bert_base", "vit_base"} & set(COUNTED)
    assert set(ABLATED) < set(COUNTED)


def test_counts_alone_compile_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported, cache = tmp_path / "told.json", tmp_path / "cache"
    assert main(["tiny_cnn", "--counts", "--peers", "", "--json", str(reported), "--cache", str(cache)]) == 0
    found = json.loads(reported.read_text())
    assert [row["model"] for row in found["counts"]] == ["tiny_cnn"]
    assert found["ablation"] == []
    assert not (cache / "artifacts").exists()
    assert "| tiny_cnn |" in capsys.readouterr().out


def test_a_model_is_raced_without_each_name_unless_that_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.onnx"
    file.write_bytes(build("tiny_inception").SerializeToString())
    reported, results = tmp_path / "told.json", tmp_path / "RESULTS.md"
    arguments = [str(file), "--peers", "", "--without", "epilogue,recurrence", "--rounds", "2", "--budget", "0"]
    places = ["--cache", str(tmp_path / "cache"), "--json", str(reported), "--markdown", str(results)]
    assert main([*arguments, *places]) == 0
    found = json.loads(reported.read_text())
    raced, same = found["ablation"]
    assert (raced["without"], raced["same"], same["without"], same["same"]) == ("epilogue", False, "recurrence", True)
    (counted,) = found["counts"]
    assert counted["kernels"] - counted["offered"] <= raced["kernels"] <= counted["kernels"], "joins are settled last"
    assert raced["kernels_without"] > raced["kernels"]
    assert raced["ms"] > 0
    assert raced["ratio"] == pytest.approx(raced["ms_without"] / raced["ms"], rel=0.5)
    assert raced["difference"] < 1e-4
    assert (same["ratio"], same["ms"]) == (1.0, None)
    table = capsys.readouterr().out
    assert "| mine | 1 | epilogue |" in table
    assert "- mine: recurrence" in table
    assert "- mine: recurrence" in results.read_text()
