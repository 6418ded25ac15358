"""The probe of an artifact: run once for each file and machine; right results are in its bands, wrong ones not."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.ir.graph import Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.pack.loader.drawing import _Stable
from compiler.pack.loader.probe import _fault
from compiler.pack.pack import packed_with_probe
from compiler.prove.reference import evaluate_graph
from compiler.steps.probing import MOST_BYTES, drawn_probe, with_bands
from tests.compiler.pack.conftest import GRAPH, Parts
from tests.compiler.pack.test_pack import mapped_at
from tests.parse import parse_graph

TOLERANCE = 1e-4


def probed(parts: Parts, path: Path) -> Path:
    """An artifact with the probe of its graph."""
    packed, graph = parts.pack(path), parse_graph(GRAPH)
    rule, inputs = drawn_probe(packed.manifest, graph, None, {}, {}, 3)
    found = evaluate_graph(graph, inputs, OPERATORS)
    outputs = [graph.values[id] for id in graph.outputs]
    probe = with_bands(rule, outputs, [found[id] for id in graph.outputs], ("y", "z"), TOLERANCE)
    return packed_with_probe(packed, probe).path


@pytest.fixture
def runs(loader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One element for each run of a probe. Files count as settled at once, and notes are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "_SETTLED_S", -1e9)
    counted: list[None] = []
    faults = loader._probe_faults

    def counting(*given: Any) -> Any:
        counted.append(None)
        return faults(*given)

    monkeypatch.setattr(loader, "_probe_faults", counting)
    return counted


def test_a_probe_is_run_once_for_each_file_machine_and_plan_and_always_if_asked_for(
    loader: ModuleType, parts: Parts, runs: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = probed(parts, tmp_path / "m.tw")
    for expected, options in ((0, {"verify": False}), (1, {}), (1, {}), (2, {"lanes": 1}), (2, {"lanes": 1})):
        loader.Model(path, **options).close()
        assert len(runs) == expected
    loader.Model(path, verify=True).close()
    assert len(runs) == 3
    monkeypatch.setattr(loader, "_processor", lambda: "model name Another")
    for _ in range(2):
        loader.Model(path).close()
    assert len(runs) == 4
    path.write_bytes(path.read_bytes())
    loader.Model(path).close()
    assert len(runs) == 5


def test_the_manifest_with_a_probe_is_the_last_member_of_a_sound_archive_of_the_same_bytes_each_time(
    parts: Parts, tmp_path: Path
) -> None:
    one, two = (probed(parts, tmp_path / name) for name in ("one.tw", "two.tw"))
    assert one.read_bytes() == two.read_bytes()
    plain = parts.pack(tmp_path / "plain.tw").path
    with zipfile.ZipFile(one) as archive, zipfile.ZipFile(plain) as other:
        assert archive.testzip() is None
        assert archive.namelist() == other.namelist()
        described = json.loads(archive.read("manifest.json"))
        assert json.loads(other.read("manifest.json")) == {k: v for k, v in described.items() if k != "probe"}
    assert mapped_at(one) == mapped_at(plain)


def test_a_kernel_that_computes_wrong_is_an_error_that_names_the_output(
    loader: ModuleType, parts: Parts, build: Callable[..., bytes], runs: list[None], tmp_path: Path
) -> None:
    wrong = probed(parts.library(build("-DSLIP=1")), tmp_path / "m.tw")
    for _ in range(2):
        with pytest.raises(loader.WrongMachine, match=r"computes .*m.tw wrong, and in a second run too: output 'y'"):
            loader.Model(wrong)
    with loader.Model(wrong, verify=False) as model:
        (said,) = model.self_check()
    assert "within" in said
    with loader.Model(probed(parts.library(build("-DSLIP=1e-4f")), tmp_path / "near.tw")) as model:
        assert model.self_check() == ()


def test_what_fails_once_is_told_from_what_fails_each_time(
    loader: ModuleType, parts: Parts, runs: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, answers = probed(parts, tmp_path / "m.tw"), iter([("output 'y' is wrong",), ()])
    monkeypatch.setattr(loader, "_probe_faults", lambda *_: next(answers))
    with pytest.raises(loader.WrongMachine, match="and not in a second run: output 'y' is wrong"):
        loader.Model(path)


def test_a_weight_that_changed_under_a_stale_note_is_found_by_the_probe(
    loader: ModuleType, parts: Parts, runs: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = probed(parts, tmp_path / "m.tw")
    monkeypatch.setattr(loader, "_state", lambda path, part: hashlib.sha256(part.encode()).hexdigest())
    loader.Model(path).close()
    begin = mapped_at(path)
    with path.open("r+b") as file:
        file.seek(begin + 3)
        (high,) = file.read(1)
        file.seek(begin + 3)
        file.write(bytes([high ^ 1]))  # of the exponent: 2.0 becomes 8.0
    loader.Model(path).close()  # as noted
    monkeypatch.setattr(loader, "_processor", lambda: "microcode 0x2")
    with pytest.raises(loader.WrongMachine, match="output 'y'"):
        loader.Model(path)


def test_an_artifact_without_a_probe_loads_and_says_so(loader: ModuleType, artifact: Path, runs: list[None]) -> None:
    with loader.Model(artifact) as model:
        assert not runs
        with pytest.raises(loader.RunError, match=r"no probe. Fix: compile"):
            model.self_check()


def test_without_a_place_for_notes_each_load_runs_the_probe(
    loader: ModuleType, parts: Parts, runs: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = probed(parts, tmp_path / "m.tw")
    for _ in range(2):
        loader.Model(path).close()
    assert len(runs) == 2


def test_processes_that_load_at_once_do_not_disturb_each_other(parts: Parts, tmp_path: Path) -> None:
    path = probed(parts, tmp_path / "m.tw")
    command = [sys.executable, str(path), "--json"]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(4)]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert [set(json.loads(one)["outputs"]) for one in said] == [{"y", "z"}] * 4


def test_a_processor_is_named_by_its_model_and_microcode_alone(
    loader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "cpuinfo"
    own.write_text(
        "processor : 0\nmodel name\t: A\nmicrocode\t: 0x1\ncpu MHz : 1.5\n\nprocessor : 1\nmicrocode : 0x9\n"
    )
    monkeypatch.setattr(loader, "_CPUINFO", own)
    assert loader._processor() == "model name A, microcode 0x1"
    monkeypatch.setattr(loader, "_CPUINFO", tmp_path / "none")
    assert loader._processor() == ""


def test_draws_are_the_same_bits_whatever_numpy() -> None:
    source = _Stable(7)
    arrays = [
        source.integers(-5, 250, (5,)),
        source.integers(-(2**63), 2**63 - 1, (3,), endpoint=True),
        source.standard_normal((4,)),
        source.uniform(-0.25, 0.5, (3,)),
        source.integers(0, 2, ()),
    ]
    assert [array.tolist() for array in arrays] == DRAWN
    large = _Stable(1, 2).standard_normal((200_000,))
    assert abs(large.mean()) < 0.01
    assert abs(large.std() - 4 * 0.5 / 3**0.5) < 0.01
    assert np.unique(_Stable(3).integers(3, 9, (500,), endpoint=True)).tolist() == list(range(3, 10))


DRAWN: list[Any] = [
    [58, 240, 6, 94, 71],
    [6890844805077280564, -9126244311063483280, 5925618423109387997],
    [-0.460601806640625, -1.20947265625, 1.02618408203125, -0.31341552734375],
    [-0.05884780925940655, 0.08380722941198493, 0.12841119421846497],
    1,
]


def value_of(dtype: DType, shape: tuple[int, ...]) -> Value:
    return Value(0, TensorType(dtype, shape), "y")


def band_of(want: np.ndarray, dtype: DType = DType.F32, tolerance: float = TOLERANCE) -> dict[str, Any]:
    value = value_of(dtype, want.shape)
    probe = with_bands({"seed": 0, "inputs": {}}, [value], [want], ["y"], tolerance)
    (band,) = json.loads(json.dumps(probe))["outputs"]
    return dict(band)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 67), (100_003,)])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_within_the_tolerance_is_in_the_band_and_what_is_far_off_is_not(
    shape: tuple[int, ...], seed: int
) -> None:
    random = np.random.default_rng(seed)
    want = np.asarray(random.standard_normal(shape) * 10.0 ** random.integers(-3, 4))
    band, largest = band_of(want), float(np.abs(want).max())
    near = want + random.uniform(-1.9, 1.9, shape) * TOLERANCE * largest
    assert not _fault("y", 0, band, near.astype(np.float32), "float32")
    one = np.array(near, np.float32)
    one.reshape(-1)[random.integers(one.size)] = largest * 4
    assert _fault("y", 0, band, one, "float32")
    one.reshape(-1)[random.integers(one.size)] = np.nan
    assert "NaN" in _fault("y", 0, band, one, "float32")
    assert "elements" in _fault("y", 0, band, np.zeros(want.size + 1, np.float32), "float32")
    if want.size > 8:
        moved = np.roll(near.astype(np.float32).reshape(-1), want.size // 2)
        assert _fault("y", 0, band, moved, "float32")


def test_elements_that_are_not_finite_must_be_so_and_the_others_are_compared() -> None:
    want = np.array([1.0, np.nan, np.inf, -2.0, 1e300])
    band = band_of(want)
    right = np.array([1.0, np.nan, np.inf, -2.0, np.inf], np.float32)
    assert not _fault("y", 0, band, right, "float32")
    for at, number in ((0, np.nan), (1, 0.0), (3, 2.0)):
        wrong = right.copy()
        wrong[at] = number
        assert _fault("y", 0, band, wrong, "float32")


def test_bfloat16_travels_as_its_bits_and_is_compared_as_numbers() -> None:
    want = np.random.default_rng(0).standard_normal(300)
    band = band_of(want, DType.BF16, 5e-2)
    bits = want.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert not _fault("y", 0, band, bits, "bfloat16")
    bits[9] ^= 0x4000
    assert _fault("y", 0, band, bits, "bfloat16")


def test_whole_numbers_are_equal_but_for_one_of_many() -> None:
    few, many = np.array([3, 2**60 + 1, -7]), np.arange(1000) % 17
    assert not _fault("y", 0, band_of(few, DType.I64), few, "int64")
    assert "element 1" in _fault("y", 0, band_of(few, DType.I64), np.array([3, 2**60, -7]), "int64")
    band = band_of(many, DType.I64)
    places = _Stable(0).integers(0, 1000, (16,))
    other = many.copy()
    other[places[0]] += 1
    assert not _fault("y", 0, band, other, "int64")
    other[places[1]] += 1
    assert _fault("y", 0, band, other, "int64")
    assert not _fault("y", 0, band_of(many > 3, DType.BOOL), many > 3, "bool")


@pytest.mark.parametrize("outputs", [1, 5, 40, 300])
def test_a_probe_has_room_however_many_outputs_there_are(outputs: int) -> None:
    random = np.random.default_rng(0)
    values = [replace(value_of(DType.F32, (500,)), name=f"y{at}") for at in range(outputs)]
    want = [random.standard_normal(500) for _ in values]
    probe = with_bands({"seed": 0, "inputs": {}}, values, want, [value.name or "" for value in values], TOLERANCE)
    assert len(json.dumps(probe)) <= MOST_BYTES
    assert len([band for band in probe["outputs"] if band]) >= min(outputs, 8)
