"""An output in pieces as a job gives it, beside what the artifact gives here."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright
from compiler.contract import CompileOptions, Event
from compiler.contract.bindings import DimRange
from compiler.errors import InputsError
from tests.compiler.steps.local_models import Net
from tests.compiling import compile_file
from tilewright.arrays import array_of, write_npz
from worker.attempt.child import Outbox, Spec
from worker.attempt.supervise import to_event
from worker.limits import Limits
from worker.work import inference
from worker.work import pieces as module

LENGTH = 40
OPTIONS = CompileOptions(dims={"n": DimRange(4, 40, 64)}, tuning_budget_s=0, threads=1, seed=1)


def compiled(folder: Path, chunks: dict[str, int]) -> Path:
    net = Net(np.random.default_rng(7))
    x = net.node("Conv", "x", net.normal(3, 2, 5), pads=[2, 2])
    (folder / "m.onnx").write_bytes(net.model((1, 2, "n"), net.node("Tanh", x)))
    options = CompileOptions.from_json({**OPTIONS.to_json(), "chunks": chunks})
    compile_file(folder / "m.onnx", folder / "m.tw", options, measure=False)
    return folder / "m.tw"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("pieces"), {"y": 12})


class Told:
    """Stands for the pipe to the worker, which lets through what `to_event` takes."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(to_event(event.to_json()))

    @property
    def pieces(self) -> list[np.ndarray]:
        """Each of which begins where the one before has ended."""
        found: list[np.ndarray] = []
        for event in self.events:
            if event.kind == "piece":
                assert event.data["first"] == sum(one.shape[2] for one in found)
                assert (event.data["output"], event.data["axis"]) == ("y", 2)
                found.append(array_of(event.data))
        return found


def done(folder: Path, artifact: Path, length: int = LENGTH) -> tuple[dict[str, Any], Told, dict[str, np.ndarray]]:
    given = {"x": np.random.default_rng(length).standard_normal((1, 2, length), np.float32)}
    write_npz(folder / "in.npz", given)
    inputs = (("artifact", artifact), ("inputs", folder / "in.npz"))
    options = {"threads": 1, "pieces": True}
    limits = Limits(wall_s=60.0, memory_bytes=1 << 30)
    spec = Spec("inference", inputs, folder / "out.npz", folder, folder / "finish", options, (), limits)
    told = Told()
    return inference.work(spec, cast(Outbox, told)), told, given


def test_pieces_are_those_of_this_machine_and_joined_they_are_the_output(artifact: Path, tmp_path: Path) -> None:
    report, told, given = done(tmp_path, artifact)
    with tilewright.load(artifact) as model:
        expected, whole = [*model.chunks(given)], model.run(given)["y"]
    assert [one.tobytes() for one in told.pieces] == [one.tobytes() for one in expected]
    with np.load(tmp_path / "out.npz") as out:
        assert [*out] == ["y"]
        np.testing.assert_allclose(out["y"], whole, rtol=1e-5, atol=1e-6)
    assert (report["pieces"], report["lanes"]) == (4, 1)
    assert 0 < report["first_s"] <= report["seconds"]
    assert report["outputs"]["y"]["shape"] == [1, 3, LENGTH]


def test_a_piece_too_large_for_an_event_comes_in_several(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PIECE_BYTES", 5 * 3 * 4)
    _, told, _ = done(tmp_path, artifact)
    assert [one.shape[2] for one in told.pieces] == [5, 5, 2] * 3 + [4]
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_array_equal(np.concatenate(told.pieces, 2), out["y"])


@pytest.mark.parametrize(
    ("limit", "value", "told_of"),
    [("MOST_PIECES", 2, 24), ("MOST_PIECES_BYTES", 30 * 3 * 4, 24), ("MOST_PIECE_BYTES", 8, 0)],
)
def test_what_is_beyond_a_limit_comes_with_the_outputs_alone(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, told_of: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    report, told, _ = done(tmp_path, artifact)
    assert sum(one.shape[2] for one in told.pieces) == told_of
    assert report["pieces"] == 4
    with np.load(tmp_path / "out.npz") as out:
        assert out["y"].shape == (1, 3, LENGTH)


def test_what_cannot_come_in_pieces_is_the_callers_fault(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(InputsError) as refused:
        done(tmp_path, artifact, 65)
    assert "input 'x' has shape [1, 2, 65]" in str(refused.value.refusals)
    with pytest.raises(InputsError, match="no output in pieces") as without:
        done(tmp_path, compiled(tmp_path, {}))
    assert "chunks" in without.value.fix


def test_elements_of_an_event_are_little_endian() -> None:
    said = {"shape": [2], "dtype": "uint16", "elements": base64.b64encode(b"\x01\x00\x00\x02").decode()}
    assert array_of(said).tolist() == [1, 512]
