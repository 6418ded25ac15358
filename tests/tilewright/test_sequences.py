"""Models whose inputs and outputs are sequences, by the session and by `tilewright run`, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from typer.testing import CliRunner

from compiler.contract import CompileOptions
from compiler.pipeline import compile_model
from compiler.request import Request
from tilewright import local
from tilewright.cli import app
from tilewright.cli.run import tensors
from tilewright.session.session import HOST, OURS, InferenceSession, InvalidArgument

TEXT = """<ir_version: 10, opset_import: ["" : 21]> m (seq(float[2,3]) s, float[2,3] z)
=> (float[6,3] y, seq(float[2,3]) t) { a = Relu(z) u = SequenceInsert(s, a) y = ConcatFromSequence<axis=0>(u)
t = SequenceInsert(s, z) }"""
OPTIONS: dict[str, Any] = {"threads": 1, "tuning_budget_s": 0.0, "inputs": {"s": [2], "s.0": [2, 3], "s.1": [2, 3]}}


def tensor(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)


FEED: dict[str, Any] = {"s": [tensor(0), tensor(1)], "z": tensor(2)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that appends to a sequence and joins it, and its artifact for sequences of two."""
    folder = tmp_path_factory.mktemp("sequences")
    model, artifact = folder / "m.onnx", folder / "m.tw"
    onnx.save(parser.parse_model(TEXT), model)
    compile_model(Request(model, artifact, CompileOptions.from_json(OPTIONS)))
    return model, artifact


def described(ports: Any) -> list[tuple[Any, ...]]:
    return [(port.name, port.type, list(port.shape)) for port in ports]


def test_a_session_takes_and_gives_lists_as_ONNX_Runtime_does(files: tuple[Path, Path]) -> None:
    theirs, ours = onnxruntime.InferenceSession(str(files[0]), providers=[HOST]), InferenceSession(files[1])
    assert described(ours.get_inputs()) == described(theirs.get_inputs())
    assert described(ours.get_outputs()) == described(theirs.get_outputs())
    for found, wanted in zip(ours.run(None, FEED), theirs.run(None, FEED), strict=True):
        assert type(found) is type(wanted)
        np.testing.assert_array_equal(np.stack([*found]), np.stack([*wanted]))
    with pytest.raises(InvalidArgument, match="'s' is a sequence of 2 tensors, not a list of 1"):
        ours.run(None, {**FEED, "s": FEED["s"][:1]})
    with pytest.raises(ValueError, match=r"\['s'\]"):
        ours.run(["y"], {"z": FEED["z"]})
    assert len(ours.run(["t"], FEED)[0]) == 3


def test_lists_of_another_length_are_answered_by_ONNX_Runtime(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(local, "compiled", lambda path, options: files[1])
    session = InferenceSession(files[0], options=OPTIONS)
    assert session.wait()
    assert session.get_providers() == [OURS]
    longer = session.run(["t"], {**FEED, "s": [tensor(at) for at in range(4)]})[0]
    assert len(longer) == 5


def test_the_command_shows_and_writes_the_elements_of_a_sequence(files: tuple[Path, Path], tmp_path: Path) -> None:
    given, written = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(given, **{"s.0": FEED["s"][0], "s.1": FEED["s"][1], "z": FEED["z"]})
    done = CliRunner().invoke(app, ["run", str(files[1]), "--input", str(given), "--output", str(written)])
    assert done.exit_code == 0, done.output
    with np.load(written) as found:
        assert sorted(found) == ["t.0", "t.1", "t.2", "y"]
        np.testing.assert_array_equal(found["t.2"], FEED["z"])
    assert CliRunner().invoke(app, ["run", str(files[1])]).exit_code == 0
    assert tensors({"n": None, "e": [], "y": 1}) == {"y": 1}
