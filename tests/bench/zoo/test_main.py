from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.zoo import ZOO
from bench.zoo.__main__ import main


def test_the_command_writes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.onnx"
    assert main(["tiny_transformer", "--out", str(out), "--option", "seq=4"]) == 0
    model = onnx.load(out)
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 4]
    assert "model.onnx: " in capsys.readouterr().out


def test_the_list_names_every_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [e.name for e in ZOO]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vgg"], "no network 'vgg'"),
        (["tiny_cnn", "--option", "seq=4"], "tiny_cnn has no option seq"),
        (["tiny_cnn", "--option", "size=big"], "write KEY=VALUE"),
    ],
)
def test_a_wrong_name_or_option_exits_with_2_and_says_why(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.onnx"
    assert main([*arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
