"""Models in which data decide sizes, branches and iterations: compiled, proved, and run beside another runtime."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from compiler.contract import CompileOptions
from compiler.errors import InputsError
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from tests.compiler.frontend.control.test_branches import RATES
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.frontend.open.test_control_flow import BRANCHES, HALVING
from tests.compiling import compile_file

KEPT = model_of("""m (float[8] x, float[8,3] table) => (float[n,3] y, float s)
<float zero = {0.0}, int64[1] one = {1}> {
    c = Greater(x, zero) p = NonZero(c) t = Transpose(p) i = Squeeze(t, one) r = Gather(table, i)
    y = Softmax<axis=0>(r) s = ReduceSum<keepdims=0>(r)
}""")
OPEN_AND_KEPT = model_of("""m (float[n] x, float[n,3] table) => (float[k,3] y)
<float zero = {0.0}, int64[1] one = {1}> {
    c = Greater(x, zero) p = NonZero(c) t = Transpose(p) i = Squeeze(t, one) y = Gather(table, i)
}""")


def compiled(folder: Path, model: bytes, **options: Any) -> Path:
    source, artifact = folder / "m.onnx", folder / "m.tw"
    source.write_bytes(model)
    compile_file(source, artifact, CompileOptions(tuning_budget_s=0, threads=1, **options))
    return artifact


def agree(artifact: Path, model: bytes, inputs: dict[str, np.ndarray]) -> None:
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)
    with Model(artifact) as loaded:
        for _ in range(2):
            found = loaded.run(inputs)
            for array, right in zip(found.values(), wanted, strict=True):
                assert array.shape == np.shape(right)
                np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)


def test_elements_that_are_kept_come_in_their_number(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, KEPT)
    for seed in range(4):
        chance = np.random.default_rng(seed)
        x, table = chance.normal(size=8), chance.normal(size=(8, 3))
        agree(artifact, KEPT, {"x": x.astype(np.float32), "table": table.astype(np.float32)})


def test_elements_of_an_open_axis_are_kept(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, OPEN_AND_KEPT, dims={"n": {"min": 2, "opt": 4, "max": 9}})
    for size in (2, 4, 7, 9):
        chance = np.random.default_rng(size)
        x, table = chance.normal(size=size), chance.normal(size=(size, 3))
        agree(artifact, OPEN_AND_KEPT, {"x": x.astype(np.float32), "table": table.astype(np.float32)})


def test_branches_that_data_choose_run(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, BRANCHES)
    for number in range(4):
        x = np.array([-1.5, 0.25, 2.0], np.float32)
        agree(artifact, BRANCHES, {"x": x, "c": np.array(number > 1), "d": np.array(number % 2 == 1)})


def test_a_branch_that_the_range_does_not_permit_is_an_error_of_the_run_and_runs_at_the_size_that_permits_it(
    tmp_path: Path,
) -> None:
    artifact = compiled(tmp_path, RATES, dims={"samples": {"min": 8, "opt": 8, "max": 11}})
    for size, rate in ((8, 8000), (8, 16000), (9, 16000), (11, 16000)):
        x = np.arange(size, dtype=np.float32).reshape(1, size)
        agree(artifact, RATES, {"x": x, "rate": np.array(rate)})
    with Model(artifact) as loaded, pytest.raises(InputError, match=r"the condition of If .* must be true"):
        loaded.run({"x": x, "rate": np.array(8000)})


@pytest.mark.parametrize("limit", [0.4, 3.0])
def test_a_loop_ends_when_data_say_so(tmp_path: Path, limit: float) -> None:
    artifact = compiled(tmp_path, HALVING)
    agree(artifact, HALVING, {"x": np.array([7, 10], np.float32), "limit": np.array(limit, np.float32)})


def detector(count: int = 4) -> bytes:
    """A head on 8 x 8 places: boxes around them, scores of 3 classes, and the boxes that are chosen with their scores.

    Batches of an open size would need the boxes of another batch too, so there is one.
    """
    chance = np.random.default_rng(0)
    place = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, 64, 2).astype(np.float32)
    arrays: dict[str, np.ndarray] = {
        "w": chance.normal(size=(16, 3, 3, 3)).astype(np.float32) / 5,
        "head": chance.normal(size=(7, 16, 1, 1)).astype(np.float32) / 4,
        "grid": place,
        "most": np.array([count]),
        "overlap": np.array([0.45], np.float32),
        "least": np.array([0.5], np.float32),
        "zero": np.array([0]),
        "two": np.array([2]),
        "four": np.array([4]),
        "seven": np.array([7]),
        "last": np.array([2]),
        "flat": np.array([1, 7, 64]),
        "ends": np.array([0, 2]),
        "middle": np.array([1]),
        "side": np.array([1.5], np.float32),
    }
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    m (float[1,3,8,8] x) => (float[n,4] found, float[n] certainty, int64[n,1] classes) {
        c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) h = Conv(r, head) f = Reshape(h, flat)
        raw = Slice(f, zero, four, middle) logits = Slice(f, four, seven, middle) scores = Sigmoid(logits)
        rows = Transpose<perm=[0,2,1]>(raw)
        offset = Slice(rows, zero, two, last) size = Slice(rows, two, four, last)
        centre = Add(offset, grid) e = Exp(size) extent = Mul(e, side)
        boxes = Concat<axis=2>(centre, extent)
        chosen = NonMaxSuppression<center_point_box=1>(boxes, scores, most, overlap, least)
        places = Gather<axis=1>(chosen, ends)
        found = GatherND(boxes, places) certainty = GatherND(scores, chosen)
        classes = Gather<axis=1>(chosen, middle)
    }""")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return bytes(model.SerializeToString())


def test_a_detector_gives_the_boxes_that_it_chooses(tmp_path: Path) -> None:
    model = detector()
    artifact = compiled(tmp_path, model)
    counts = set()
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)
        agree(artifact, model, {"x": x * seed})
        counts.add(len(by_artifact(artifact, x * seed)["found"]))
    assert len(counts) > 1


def by_artifact(artifact: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    with Model(artifact) as loaded:
        return dict(loaded.run({"x": x}))


UNIQUE = model_of("""m (float[n,4] x) => (float[k] y, int64[k] first, int64[m] which, int64[k] often) {
    r = Round(x) y, first, which, often = Unique<sorted=0>(r)
}""")


def test_distinct_elements_of_an_open_axis_are_found(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, UNIQUE, dims={"n": {"min": 1, "max": 5}})
    for size in (1, 3, 5):
        x = np.random.default_rng(size).normal(size=(size, 4))
        agree(artifact, UNIQUE, {"x": x.astype(np.float32)})


ASSUMED = model_of("""m (float[8] x, float[8] z, float[8,3] a) => (float[k,3] y, float[8,3] board)
<float[8,3] empty = {0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0}> {
    p = Cast<to=9>(x) q = Cast<to=9>(z) g = Compress<axis=0>(a, p) e = Exp(a) h = Compress<axis=0>(e, q)
    y = Add(g, h) n = NonZero(z) t = Transpose(n) board = ScatterND(empty, t, g)
}""")
"""Random inputs keep all rows of both, so that it is proved without samples."""


def flags(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.arange(8) < count).astype(np.float32)


@pytest.fixture(scope="module")
def assuming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("assuming"), ASSUMED)


def test_sizes_that_are_equal_in_each_run_need_not_be_shown_equal(assuming: Path) -> None:
    a = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    for count in (0, 1, 3, 5, 8):
        agree(assuming, ASSUMED, {"x": flags(count, count), "z": flags(count, 9), "a": a})


@pytest.mark.parametrize(("first", "second"), [(3, 5), (8, 1), (1, 8), (0, 2)])
def test_a_run_whose_sizes_differ_is_an_error_and_the_next_run_is_unharmed(
    assuming: Path, first: int, second: int
) -> None:
    a = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    with Model(assuming) as loaded:
        right = {"x": flags(4, 1), "z": flags(4, 2), "a": a}
        before = loaded.run(right)
        with pytest.raises(InputError, match=rf"node '#\d+ Add' takes .* for equal: they are {first} and {second}"):
            loaded.run({"x": flags(first, 1), "z": flags(second, 2), "a": a})
        for name, array in loaded.run(right).items():
            np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("second", ["filled", "zero"])
def test_a_caller_in_c_is_told_which_limit_does_not_hold(assuming: Path, tmp_path: Path, second: str) -> None:
    """The example for C fills all inputs alike; with a second one of zeros no row of it is kept."""
    with zipfile.ZipFile(assuming) as archive:
        archive.extractall(tmp_path)
    source = tmp_path / "example.c"
    begin = "static void fill(tw_tensor *t) {\n"
    skips = "    static int turn;\n    if (turn++ == 1) return;\n" if second == "zero" else ""
    source.write_text(source.read_text().replace(begin, begin + skips))
    command = ["gcc", "-std=c11", "-O1", "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run(["./example", "weights.bin"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == (2 if second == "zero" else 0), ran.stderr
    if found := re.search(r"open\.limits\[(\d+)\]", ran.stderr):
        limits = json.loads((tmp_path / "manifest.json").read_text())["open"]["limits"]
        assert "Add' takes sizes kept.0 and kept.1 for equal" in limits[int(found[1])]["says"]
    assert bool(found) == (second == "zero")


def test_preflight_and_report_list_what_is_assumed(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(ASSUMED)
    report = compile_file(source, tmp_path / "m.tw", CompileOptions(tuning_budget_s=0, threads=1))
    said = [notice for notice in report.notices if "assumed of sizes that data say, else a run is an error" in notice]
    assert len(said) == 1
    assert "Add' takes sizes kept.0 and kept.1 for equal" in said[0]
    assert said[0] in preflight(source, CompileOptions())["notices"]


def test_a_model_that_random_inputs_do_not_fit_asks_for_samples(tmp_path: Path) -> None:
    model = model_of("""m (float[8] x, float[8,3] a) => (float[4,3] y) <float zero = {0}, float[4,1] w = {1,2,3,4}> {
        p = Greater(x, zero) g = Compress<axis=0>(a, p) y = Mul(g, w)
    }""")
    with pytest.raises(InputsError, match=r"takes sizes kept\.0 and 4 for equal"):
        compiled(tmp_path, model)
    rows, sample = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), tmp_path / "one.npz"
    np.savez(sample, x=flags(4, 1), a=rows)
    artifact = tmp_path / "given.tw"
    options = CompileOptions(tuning_budget_s=0, threads=1)
    compile_file(tmp_path / "m.onnx", artifact, options, samples={"one": sample})
    agree(artifact, model, {"x": flags(4, 2), "a": rows})


def test_more_places_are_written_than_a_bound_would_be_without_the_size_beside_it(tmp_path: Path) -> None:
    model = model_of("""m (float[40,40] x) => (float[40,40] y)
    <float zero = {0}, float two = {2.5}, int64[1] front = {0}> {
        c = Greater(x, zero) p = NonZero(c) t = Transpose(p) i = Cast<to=7>(c) n = ReduceSum<keepdims=0>(i)
        s = Unsqueeze(n, front) v = Expand(two, s) y = ScatterND(x, t, v)
    }""")
    artifact = compiled(tmp_path, model)
    for share in (0.0, 0.3, 1.0):
        x = np.random.default_rng(1).uniform(share - 1, share, (40, 40)).astype(np.float32)
        agree(artifact, model, {"x": x})


ALIKE = model_of("""m (float[1,n,2,m] x) => (float[1,n,2,m] drawn, float[1,n,2,m] y, float[m,m] ones)
<int64[1] zero = {0}> {
    drawn = RandomNormalLike<seed=2.0>(x) y = MeanVarianceNormalization<axes=[1,2,3]>(x)
    s = Shape<start=3>(x) t = Concat<axis=0>(s, s) c = ConstantOfShape(t) ones = EyeLike(c)
}""")


def test_what_has_the_shape_of_an_input_follows_its_size(tmp_path: Path) -> None:
    """The first numbers that are drawn are the same at all sizes, of the exact program at (3, 4) too."""
    dims = {"n": {"min": 2, "opt": 3, "max": 5}, "m": {"min": 1, "opt": 4, "max": 6}}
    artifact = compiled(tmp_path, ALIKE, dims=dims)
    drawn = []
    for rows, columns in ((5, 6), (2, 1), (3, 4), (4, 5)):
        x = np.random.default_rng(rows).normal(size=(1, rows, 2, columns)).astype(np.float32)
        with Model(artifact) as loaded:
            found = loaded.run({"x": x})
        np.testing.assert_allclose(found["y"], (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found["ones"], np.eye(columns, dtype=np.float32))
        assert found["drawn"].shape == x.shape
        drawn.append(found["drawn"].reshape(-1))
    for some in drawn[1:]:
        np.testing.assert_allclose(some, drawn[0][: some.size], rtol=1e-5, atol=1e-6)
