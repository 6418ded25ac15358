from __future__ import annotations

from pathlib import Path

import pytest

from bench.subjects import check, subject
from bench.zoo import NoSuchNetwork, build
from tilewright.errors import UsageError


def test_a_name_is_a_file_a_public_model_or_a_network_of_the_zoo(tmp_path: Path) -> None:
    file = tmp_path / "mine.onnx"
    file.write_bytes(build("tiny_cnn").SerializeToString())
    for name in (str(file), "ppocr_rec", "tiny_cnn"):
        check(name)
    mine, network = subject(str(file), tmp_path), subject("tiny_cnn", tmp_path)
    assert (mine.name, mine.source, mine.file) == ("mine", "file", file)
    assert (network.name, network.source, network.file) == ("tiny_cnn", "zoo", tmp_path / "tiny_cnn.onnx")


def test_what_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.onnx is no file"):
        check(str(tmp_path / "absent.onnx"))
    with pytest.raises(NoSuchNetwork, match="no network 'alexnet' in the zoo"):
        check("alexnet")
