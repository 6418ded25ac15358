from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from bench.edge import compiled, subjects
from tests.compiler.accelerate.models import array, saved


def test_a_network_is_compiled_for_an_accelerator_as_it_is_and_legalised() -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    lines = compiled.rows("block", lambda: subjects.transformer("Gelu", rows=8, width=16), compiled.CHIPS[:1])
    columns = len(compiled.HEAD.splitlines()[0].split("|"))
    as_it_is, legalised = ([cell.strip() for cell in line.split("|")] for line in lines)
    assert len(as_it_is) == len(legalised) == columns
    assert (as_it_is[3], legalised[3]) == ("as it is", "legalised")
    assert not as_it_is[4].endswith("/ 0")
    assert legalised[4].endswith("/ 0")
    assert (as_it_is[12], legalised[5]) == ("1.00", "0")
    assert float(as_it_is[8]) > float(as_it_is[9]) > 0
    assert min(float(as_it_is[13]), float(legalised[13])) > 15


def test_a_network_is_compiled_in_both_formats_beside_each_other(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("HardSwish", ["a"], ["y"])]
    model = saved(tmp_path / "m.onnx", nodes, {"w": array(8, 4, 3, 3)}, (1, 4, 8, 8)).read_bytes()
    lines = compiled.formats("block", lambda: model, compiled.CHIPS[:1])
    columns = len(compiled.FORMATS_HEAD.splitlines()[0].split("|"))
    tflite, tosa = ([cell.strip() for cell in line.split("|")] for line in lines)
    assert len(tflite) == len(tosa) == columns
    assert (tflite[3], tosa[3]) == ("tflite", "tosa")
    assert (tflite[12], tosa[5]) == ("1.000", "0")
    assert 0 < float(tosa[12]) < 2
    assert tflite[13] == tosa[13]
