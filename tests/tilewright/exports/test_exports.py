"""Artifacts as a model of Triton's Python backend, and as an image: valid by schema, and run without a server."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)
from onnx import TensorProto, helper

import tilewright
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tilewright.errors import UsageError
from tilewright.exports import oci_layout, triton_repository
from tilewright.exports.triton import TYPES, config_of

MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "Shape": (("shape", 1, "int64", True),),
    "Input": (
        ("name", 1, "string", False), ("data_type", 2, "DataType", False), ("dims", 4, "int64", True),
        ("reshape", 5, "Shape", False),
    ),
    "Output": (
        ("name", 1, "string", False), ("data_type", 2, "DataType", False), ("dims", 3, "int64", True),
        ("reshape", 5, "Shape", False),
    ),
    "Group": (("count", 2, "int32", False), ("kind", 4, "Kind", False)),
    "Config": (
        ("name", 1, "string", False), ("max_batch_size", 4, "int32", False), ("input", 5, "Input", True),
        ("output", 6, "Output", True), ("instance_group", 7, "Group", True), ("backend", 17, "string", False),
    ),
}  # fmt: skip
ENUMS = {
    "DataType": (
        "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8",
        "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
    ),
    "Kind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
}  # fmt: skip
"""The part of Triton's model_config.proto that is written."""


def parsed(text: str) -> Any:
    """config.pbtxt by that schema; an unknown field or value is an error."""
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    plain = {"string": 9, "int64": 3, "int32": 5}
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for called, number, kind, repeated in fields:
            one = message.field.add(name=called, number=number, label=3 if repeated else 1)
            one.type = plain.get(kind, 14 if kind in ENUMS else 11)
            if kind not in plain:
                one.type_name = f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return text_format.Parse(text, message_factory.GetMessageClass(pool.FindMessageTypeByName("Config"))())


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    total = helper.make_tensor_value_info("total", TensorProto.FLOAT, [])
    y = helper.make_tensor_value_info('y "quoted"', TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Relu", ["x"], ['y "quoted"']),
        helper.make_node("ReduceSum", ['y "quoted"'], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y, total])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "sum.onnx")
    options = {"dims": {"batch": {"min": 1, "opt": 2, "max": 4}}, "tuning_budget_s": 0, "threads": 1}
    compile_file(folder / "sum.onnx", folder / "sum.tw", CompileOptions.from_json(options))
    return folder / "sum.tw"


def test_the_configuration_is_one_of_tritons_schema(artifact: Path, tmp_path: Path) -> None:
    here = triton_repository(artifact, tmp_path / "repository")
    config = parsed((here / "config.pbtxt").read_text())
    assert here == tmp_path / "repository" / "sum"
    assert (config.name, config.backend, config.max_batch_size) == ("sum", "python", 0)
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [("x", 11, [-1, 3])]
    assert [(one.name, list(one.dims)) for one in config.output] == [('y "quoted"', [-1, 3]), ("total", [1])]
    assert config.output[1].HasField("reshape")
    assert not config.output[1].reshape.shape
    assert [(one.count, one.kind) for one in config.instance_group] == [(1, 2)]
    assert (here / "1" / "model.tw").read_bytes() == artifact.read_bytes()


@dataclass
class Tensor:
    """As the backend's: a name and an array, which may be of strings as bytes."""

    name: str
    array: np.ndarray

    def as_numpy(self) -> np.ndarray:
        return self.array


@dataclass
class Request:
    inputs: dict[str, np.ndarray]
    wanted: tuple[str, ...]

    def requested_output_names(self) -> list[str]:
        return [*self.wanted]


@dataclass
class Response:
    output_tensors: list[Tensor]
    error: Any = None


@dataclass
class Failure:
    message: str = field()


def stand_in() -> Any:
    """`triton_python_backend_utils`, of which the server's process has the real one."""
    module: Any = ModuleType("triton_python_backend_utils")
    module.Tensor, module.InferenceResponse, module.TritonError = Tensor, Response, Failure
    module.get_input_tensor_by_name = lambda request, name: Tensor(name, request.inputs[name])
    return module


@pytest.fixture
def backend(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exported model.py, initialised as the Python backend does."""
    here = triton_repository(artifact, tmp_path, "served")
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "loader", raising=False)
    spec = importlib.util.spec_from_file_location("served_model", here / "1" / "model.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = parsed((here / "config.pbtxt").read_text())
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_repository": str(here),
            "model_version": "1",
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_config": json.dumps(
                {"input": [{"name": one.name} for one in config.input],
                 "output": [{"name": one.name} for one in config.output]}
            ),
        }
    )  # fmt: skip
    yield model
    model.finalize()
    sys.modules.pop("loader", None)


def test_the_python_backend_answers_what_the_artifact_does(backend: Any, artifact: Path) -> None:
    arrays = [np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32) for rows in (2, 3)]
    names = ('y "quoted"', "total")
    wrong = Request({"x": np.zeros((9, 3), np.float32)}, names)
    answers = backend.execute([Request({"x": arrays[0]}, names), wrong, Request({"x": arrays[1]}, ("total",))])
    assert [answer.error is None for answer in answers] == [True, False, True]
    assert "9" in answers[1].error.message
    assert [one.name for one in answers[0].output_tensors] == [*names]
    assert [one.name for one in answers[2].output_tensors] == ["total"]
    np.testing.assert_array_equal(answers[0].output_tensors[0].array, np.maximum(arrays[0], 0))
    with tilewright.load(artifact) as model:
        want = model.run({"x": arrays[1]})["total"]
    assert answers[2].output_tensors[0].array.shape == ()
    np.testing.assert_array_equal(answers[2].output_tensors[0].array, want)


def test_what_the_python_backend_has_no_arrays_of_is_refused(artifact: Path, tmp_path: Path) -> None:
    manifest = {"target": "cpu", "inputs": [{"name": "x", "dtype": "bfloat16", "shape": [1]}], "outputs": []}
    with pytest.raises(UsageError, match="bfloat16"):
        config_of(manifest, "m")
    assert "bfloat16" not in TYPES
    with pytest.raises(UsageError, match="cannot be the name"):
        triton_repository(artifact, tmp_path, "../up")


def test_an_image_is_whole_by_its_digests_and_holds_the_artifact(artifact: Path, tmp_path: Path) -> None:
    digest = oci_layout(artifact, tmp_path / "image", "latest")
    here = tmp_path / "image"
    assert json.loads((here / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}

    def blob(one: dict[str, Any]) -> bytes:
        content: bytes = (here / "blobs" / one["digest"].replace(":", "/")).read_bytes()
        assert len(content) == one["size"]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == one["digest"]
        return content

    (image,) = json.loads((here / "index.json").read_text())["manifests"]
    assert image["digest"] == digest
    assert image["annotations"] == {"org.opencontainers.image.ref.name": "latest"}
    manifest = json.loads(blob(image))
    assert manifest["schemaVersion"] == 2
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert "artifactType" not in manifest, (
        "with an image's configuration it is no artifact (image-spec 1.1, manifest.md)"
    )
    assert all(isinstance(value, str) for value in manifest["annotations"].values())
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [layer["digest"]]}
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    (tmp_path / "layer.tar").write_bytes(blob(layer))
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert tar.getnames() == ["model.tw"]
        found = tar.extractfile("model.tw")
        assert found is not None
        assert found.read() == artifact.read_bytes()
    blobs = {path.name for path in (here / "blobs" / "sha256").iterdir()}
    assert blobs == {one["digest"].partition(":")[2] for one in (image, manifest["config"], layer)}
    assert oci_layout(artifact, tmp_path / "again", "latest") == digest
    with pytest.raises(UsageError, match="not empty"):
        oci_layout(artifact, here)
