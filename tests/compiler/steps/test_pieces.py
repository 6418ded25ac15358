"""An output in pieces from an artifact: at sizes that are open, from its own loader, and made again."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from compiler.contract import CompileOptions, CompileReport
from compiler.contract.bindings import DimRange
from compiler.pack.loader import InputError, Model, RunError
from compiler.preflight import preflight
from compiler.reproduce import reproduce
from tests.compiler.steps.local_models import Net
from tests.compiling import compile_file

CHUNK = 24
OPTIONS = CompileOptions(dims={"n": DimRange(4, 40, 64)}, chunks={"y": CHUNK}, tuning_budget_s=0, threads=1, seed=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompileReport]:
    """A model [1, 2, n] -> [1, 1, 2n] whose first layer mixes all of time, compiled with its pieces."""
    folder = tmp_path_factory.mktemp("pieces")
    net = Net(np.random.default_rng(7))
    x = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))
    x = net.node("Conv", x, net.normal(2, 2, 5), pads=[2, 2])
    x = net.node("ConvTranspose", x, net.normal(2, 1, 4), strides=[2], pads=[1, 1])
    (folder / "m.onnx").write_bytes(net.model((1, 2, "n"), net.node("Tanh", x)))
    return folder, compile_file(folder / "m.onnx", folder / "m.tw", OPTIONS, measure=False)


def _x(length: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 2, length), np.float32)}


def test_pieces_make_what_a_run_gives_at_every_size(made: tuple[Path, CompileReport]) -> None:
    with Model(made[0] / "m.tw") as model:
        for length in (4, 13, 40, 63, 64, 40):
            pieces = list(model.chunks(_x(length)))
            assert [one.shape[2] for one in pieces] == [
                min(CHUNK, 2 * length - at) for at in range(0, 2 * length, CHUNK)
            ]
            whole = model.run(_x(length))["y"]
            np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-5, atol=1e-6)


def test_pieces_that_were_given_keep_what_they_hold(made: tuple[Path, CompileReport]) -> None:
    """Two runs in turn, whose pieces are looked at when all are there: none lies where a later one is written."""
    with Model(made[0] / "m.tw") as model:
        pairs = list(zip(model.chunks(_x(40, 1)), model.chunks(_x(40, 2)), strict=True))
        for seed, pieces in zip((1, 2), zip(*pairs, strict=True), strict=True):
            whole = model.run(_x(40, seed))["y"]
            np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-5, atol=1e-6)


def test_inputs_are_refused_before_the_first_piece(made: tuple[Path, CompileReport]) -> None:
    with Model(made[0] / "m.tw") as model:
        with pytest.raises(InputError, match="unknown input 'z'"):
            model.chunks({"z": 1})
        with pytest.raises(InputError, match="input 'x' is missing"):
            model.chunks({})
        with pytest.raises(InputError, match="65"):
            model.chunks(_x(65))
        pieces = model.chunks(_x(40))
        next(pieces)
    with pytest.raises(RunError, match="closed"):
        next(pieces)


def test_the_file_holds_the_programs_once_and_says_what_they_cost(made: tuple[Path, CompileReport]) -> None:
    folder, report = made
    with zipfile.ZipFile(folder / "m.tw") as archive:
        names = set(archive.namelist())
    assert {"chunks/before/model.so", "chunks/behind/model.so", "bindings/2/model.so", "weights.bin"} <= names
    assert not {name for name in names if name.startswith("chunks") and name.endswith(("loader.py", "weights.bin"))}
    said = [notice for notice in report.notices if "in pieces of 24" in notice]
    assert len(said) == 1
    assert preflight(folder / "m.onnx", OPTIONS)["notices"].count(said[0]) == 1
    assert len(report.bindings) == 2


def test_what_forbids_pieces_is_a_refusal_of_preflight(made: tuple[Path, CompileReport]) -> None:
    net = Net(np.random.default_rng(7))
    path = made[0] / "refused.onnx"
    path.write_bytes(net.model((1, 2, 64), net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))))
    answer = preflight(path, CompileOptions(chunks={"y": 8}))
    assert (answer["ok"], answer["refusals"][0]["operator"]) == (False, "InstanceNormalization")
    assert "reads all positions of the axis" in answer["refusals"][0]["reason"]


def test_an_artifact_without_the_option_says_how_to_have_it(made: tuple[Path, CompileReport]) -> None:
    with Model(made[0] / "m.tw") as model:
        del model.manifest["chunks"]
        with pytest.raises(RunError, match="Fix: compile it with chunks"):
            model.chunks(_x(40))


def test_it_is_made_again_byte_for_byte(made: tuple[Path, CompileReport]) -> None:
    again = reproduce(made[0] / "m.tw", made[0] / "m.onnx", made[0] / "again.tw")
    assert again.is_same, str(again)
