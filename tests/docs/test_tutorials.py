"""The commands of docs/tutorials.md, one tutorial after another in one folder, with small models."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.generate.codes import Coding
from bench.generate.decoder import Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from tests import first_tasks
from tests.docs.pages import DOCS, blocks
from tests.end_to_end import models

SAID = {
    "First model": "ONNX Runtime",
    "From PyTorch": "",
    "A GPU": "manifest.json",
    "Machines that you do not know": "cpu:x86-64-",
    "Many machines": "lab",
    "C and C++": '"outputs"',
    "A web page": "page",
    "In CI": "",
    "A voice model": "speech_probs",
    "A decoder": "decoder.tw\n14 144 115",
}
"""What the commands of each print, among the rest."""


def tutorials() -> dict[str, str]:
    """By title the commands."""
    _, *sections = (DOCS / "tutorials.md").read_text().split("\n## ")
    return {section.partition("\n")[0]: "\n".join(blocks(section, "sh")) for section in sections}


def voice() -> bytes:
    """A detector that has Silero's names and a state of its kind: a mean of what it hears, beside the one before."""
    float_, nodes = TensorProto.FLOAT, helper.make_node
    graph = helper.make_graph(
        [
            nodes("Gemm", ["input", "w"], ["heard"]),
            nodes("Reshape", ["heard", "whole"], ["now"]),
            nodes("Add", ["now", "h"], ["hn"]),
            nodes("Mul", ["hn", "c"], ["cn"]),
            nodes("ReduceMean", ["hn"], ["mean"], keepdims=0),
            nodes("Expand", ["mean", "one"], ["speech_probs"]),
        ],
        "voice",
        [helper.make_tensor_value_info("input", float_, ["seq_len", 36])]
        + [helper.make_tensor_value_info(name, float_, [1, 1, 8]) for name in "hc"],
        [helper.make_tensor_value_info("speech_probs", float_, [1])]
        + [helper.make_tensor_value_info(name, float_, [1, 1, 8]) for name in ("hn", "cn")],
        [
            numpy_helper.from_array(np.full((36, 8), 0.1, np.float32), "w"),
            numpy_helper.from_array(np.array([1, 1, 8]), "whole"),
            numpy_helper.from_array(np.array([1]), "one"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def lacking(title: str) -> str:
    """What of a tutorial's tools is not installed here; empty where all is."""
    if title == "From PyTorch" and not all(map(importlib.util.find_spec, ("torch", "onnxscript"))):
        return "PyTorch"
    if title == "A GPU" and importlib.util.find_spec("nvidia") is None:
        return "NVRTC"
    if title == "A web page" and importlib.util.find_spec("ziglang") is None:
        return "a compiler for browsers"
    return "" if shutil.which("c++") or title != "C and C++" else "a compiler of C++"


def test_each_tutorial_has_a_text_to_look_for() -> None:
    assert [*tutorials()] == [*SAID]
    assert all(commands.strip() for commands in tutorials().values())


@pytest.mark.processes
def test_each_tutorial_does_what_it_says(tmp_path: Path) -> None:
    text = decoder(parts(Seeded(SHAPES["tiny"]), Coding.NBITS4), Attention.GROUPED, 24)
    for name, content in {
        "model": models.tiny(models.QUICK),
        "voice": voice(),
        "decoder": bytes(text.SerializeToString()),
    }.items():
        (tmp_path / f"{name}.onnx").write_bytes(content)
    variables = first_tasks.environment_variables(Path(sys.executable).parent, tmp_path)
    done = []
    for title, commands in tutorials().items():
        if lacking(title):
            continue
        # Small models are measured in a moment, which says little: that nothing is slower is not what is tested.
        quick = commands.replace("--budget 20", "--budget 0").replace("--max-regression 5%", "--max-regression 900%")
        result = first_tasks.run(quick, tmp_path, variables)
        assert result.returncode == 0, title + result.stdout + result.stderr
        assert SAID[title] in result.stdout, title
        done.append(title)
    assert {*SAID} - {*done} <= {"From PyTorch", "A GPU", "C and C++", "A web page"}
