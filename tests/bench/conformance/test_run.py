from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.conformance.run import main


def test_a_part_of_the_suite_is_judged_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert main(["--only", "test_image_decoder_decode_pnm_rgb", "--jobs", "1", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["counts"] == {"refused": 1}
    ((case,),) = (found["cases"],)
    assert (case["case"], case["group"], case["status"]) == (
        "test_image_decoder_decode_pnm_rgb",
        "ImageDecoder",
        "refused",
    )
    assert "decoded by no program" in case["reason"]
    assert "| ImageDecoder | 0 | 0 | 1 | 0 | 0 |" in capsys.readouterr().out


def test_the_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "test_relu", "--list"]) == 0
    assert "test_relu (Relu)" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("arguments", [["--only", "no such case"], ["--only", "relu", "--write"], ["--jobs", "0"]])
def test_wrong_arguments(arguments: list[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
