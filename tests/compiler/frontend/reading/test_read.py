from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions, bundle_digest
from compiler.errors import MalformedModel, ModelTooLarge, TilewrightError, UnboundDimension, UnsupportedModel
from compiler.frontend import Limits, load
from compiler.frontend.reading.wire import walk
from compiler.ops import OPERATORS
from compiler.ops.operator import Operator
from tests.compiler.pipelines import forest

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
RELU = [helper.make_node("Relu", ["x"], ["y"], name="act")]


def refusal(
    model: Path | bytes, operators: Operators, kind: type[TilewrightError], limits: Limits | None = None
) -> TilewrightError:
    with pytest.raises(kind) as caught:
        load(model, CompileOptions(), operators, limits)
    assert type(caught.value) is kind
    assert caught.value.fix or any(reason.fix for reason in caught.value.refusals)
    return caught.value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"hello, I am not a model\n", "not an ONNX file"),
        (b'{"nodes": []}', "JSON"),
        (b"PK\x03\x04" + b"\0" * 60, "zip"),
        (b"\x08\x08", "holds no ONNX graph"),
        (b"\xff" * 40, "not an ONNX file"),
        (b"\0" * 1000, "not an ONNX file"),
    ],
)
def test_what_is_not_onnx_is_called_so(data: bytes, says: str, operators: Operators) -> None:
    assert says in refusal(data, operators, MalformedModel).message


def test_every_truncation_of_a_model_is_refused(operators: Operators, make_model: Maker) -> None:
    whole = make_model(RELU, {"x": [4]}, ["y"], initializers={"w": np.arange(200.0, dtype=np.float32)})
    for length in range(0, len(whole) - 1, 7):
        with pytest.raises((MalformedModel, UnsupportedModel)):
            load(whole[:length], CompileOptions(), operators)


def test_a_truncated_file_is_called_truncated(operators: Operators, make_model: Maker) -> None:
    whole = make_model(RELU, {"x": [4]}, ["y"], initializers={"w": np.arange(2000.0, dtype=np.float32)})
    assert "truncated" in refusal(whole[:3000], operators, MalformedModel).message


@pytest.mark.parametrize("version", [0, 29, 999, -5])
def test_foreign_opsets_are_refused(version: int, operators: Operators, make_model: Maker) -> None:
    error = refusal(make_model(RELU, {"x": [4]}, ["y"], opset=version), operators, UnsupportedModel)
    assert f"opset {version}" in error.message


@pytest.mark.parametrize("version", [0, 2, 15, 999])
def test_foreign_ir_versions_are_refused(version: int, operators: Operators, make_model: Maker) -> None:
    refusal(make_model(RELU, {"x": [4]}, ["y"], ir_version=version), operators, UnsupportedModel)


def test_a_cyclic_graph_is_refused_naming_a_node(operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="p"), helper.make_node("Relu", ["a"], ["b"], name="q")]
    error = refusal(make_model(nodes, {"x": [4]}, ["b"]), operators, MalformedModel)
    assert "cycle" in error.message
    assert error.refusals[0].node in ("p", "q")


def test_a_node_that_reads_itself_is_refused(operators: Operators, make_model: Maker) -> None:
    refusal(make_model([helper.make_node("Relu", ["y"], ["y"])], {"x": [4]}, ["y"]), operators, MalformedModel)


def test_a_branch_that_reads_the_result_of_its_own_if_is_refused(operators: Operators, make_model: Maker) -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["y"], ["r"])], "b", [], [onnx.ValueInfoProto(name="r")])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    assert (
        "cycle"
        in refusal(
            make_model(nodes, {"c": []}, ["y"], dtypes={"c": TensorProto.BOOL}), operators, MalformedModel
        ).message
    )


def test_a_long_cycle_and_a_long_chain_take_no_recursion(operators: Operators, make_model: Maker) -> None:
    chain = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(5000)]
    refusal(make_model(chain, {}, ["t9"], initializers={"t5000": np.ones(2, np.float32)}), operators, MalformedModel)
    looped = [*chain[1:], helper.make_node("Relu", ["t5000"], ["t1"])]
    assert "cycle" in refusal(make_model(looped, {"x": [4]}, ["t9"]), operators, MalformedModel).message


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])],
        [helper.make_node("Relu", ["x"], ["x"])],
        [helper.make_node("Relu", ["nowhere"], ["y"])],
    ],
    ids=["two producers", "an input computed", "an undefined name"],
)
def test_names_defined_twice_or_never_are_refused(
    nodes: list[onnx.NodeProto], operators: Operators, make_model: Maker
) -> None:
    refusal(make_model(nodes, {"x": [4]}, ["y"]), operators, MalformedModel)


def test_an_output_that_nothing_computes_is_refused(operators: Operators, make_model: Maker) -> None:
    assert "never computed" in refusal(make_model(RELU, {"x": [4]}, ["y", "z"]), operators, MalformedModel).message


def test_unsorted_nodes_are_sorted(operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("Abs", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    graph = load(make_model(nodes, {"x": [4]}, ["y"]), CompileOptions(), operators).graph
    assert [node.op for node in graph.nodes] == ["Relu", "Abs"]


@pytest.mark.parametrize(
    "name", ['a"b', "a\nb", "*/ int main() {", "a\0b", "../../etc", "%s%n", "'; drop table", "ü" * 3000]
)
def test_odd_names_are_data(name: str, operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("Relu", [name + "x"], [name], name=name)]
    graph = load(make_model(nodes, {name + "x": [4]}, [name]), CompileOptions(), operators).graph
    assert graph.values[graph.outputs[0]].name == name
    assert graph.nodes[0].source == name
    broken = make_model([helper.make_node("Relu", ["gone" + name], ["y"])], {"x": [4]}, ["y"])
    message = refusal(broken, operators, MalformedModel).message
    assert "\n" not in message
    assert "\0" not in message
    assert len(message) < 300


def with_tensor(tensor: TensorProto) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [onnx.ValueInfoProto(name="y")],
        [tensor],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (TensorProto(name="w", data_type=1, dims=[-4], raw_data=b"\0" * 16), MalformedModel),
        (TensorProto(name="w", data_type=1, dims=[10**6, 10**9], raw_data=b""), ModelTooLarge),
        (TensorProto(name="w", data_type=1, dims=[2**62, 2**62], raw_data=b""), ModelTooLarge),
        (TensorProto(name="w", data_type=1, dims=[0, 2**62], raw_data=b""), ModelTooLarge),
        (TensorProto(name="w", data_type=1, dims=[1] * 40, raw_data=b"\0" * 4), ModelTooLarge),
        (TensorProto(name="w", data_type=1, dims=[4], raw_data=b"\0" * 12), MalformedModel),
        (TensorProto(name="w", data_type=1, dims=[4], raw_data=b"\0" * 17), MalformedModel),
        (TensorProto(name="w", data_type=1, dims=[4], float_data=[1, 2, 3]), MalformedModel),
        (TensorProto(name="w", data_type=1, dims=[4]), MalformedModel),
        (TensorProto(name="w", data_type=3, dims=[1], int32_data=[1000]), MalformedModel),
        (TensorProto(name="w", data_type=999, dims=[4], raw_data=b"\0" * 16), MalformedModel),
        (TensorProto(name="w", data_type=0, dims=[4], raw_data=b"\0" * 16), MalformedModel),
        (TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"s"]), UnsupportedModel),
        (TensorProto(name="w", data_type=TensorProto.INT4, dims=[4], raw_data=b"\0\0"), UnsupportedModel),
    ],
)
def test_ill_formed_initializers_are_refused(
    tensor: TensorProto, kind: type[TilewrightError], operators: Operators
) -> None:
    refusal(with_tensor(tensor), operators, kind)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"],
)
@pytest.mark.parametrize("raw", [True, False])
def test_initializers_keep_their_elements(dtype: str, raw: bool, operators: Operators) -> None:
    values = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype)
    tensor = helper.make_tensor(
        "w",
        helper.np_dtype_to_tensor_dtype(values.dtype),
        values.shape,
        values.tobytes() if raw else values.flatten().tolist(),
        raw,
    )
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [3])], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    loaded = load(bytes(model.SerializeToString()), CompileOptions(), operators).graph
    (constant,) = loaded.constants.values()
    np.testing.assert_array_equal(constant, values.astype(np.float32))


def test_an_86_byte_model_with_an_astronomic_output_is_refused(operators: Operators) -> None:
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, [10**5, 10**5, 10**5])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [1])], [info]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    refusal(bytes(model.SerializeToString()), operators, ModelTooLarge)


@pytest.mark.parametrize("shape", [[10**15], [10**5, 10**5, 10**5], [2**62, 2**62]])
def test_astronomic_inputs_are_refused(shape: list[int], operators: Operators, make_model: Maker) -> None:
    refusal(make_model(RELU, {"x": shape}, ["y"]), operators, ModelTooLarge)


def test_negative_dimensions_of_inputs_are_refused(operators: Operators, make_model: Maker) -> None:
    refusal(make_model(RELU, {"x": [4, -2]}, ["y"]), operators, MalformedModel)


def test_a_dimension_of_minus_one_is_one_that_may_vary(operators: Operators, make_model: Maker) -> None:
    error = refusal(make_model(RELU, {"x": [4, -1]}, ["y"]), operators, UnboundDimension)
    assert "axis 1" in error.refusals[0].reason
    bound = load(
        make_model(RELU, {"x": [4, -1]}, ["y"]), CompileOptions.from_json({"inputs": {"x": [4, 3]}}), operators
    )
    assert bound.graph.type(bound.graph.outputs[0]).dims == (4, 3)


def test_more_fields_than_the_limit_are_refused_before_they_are_decoded(operators: Operators) -> None:
    nodes = b"\x0a\x00" * 50_000
    graph = b"\x3a" + varint(len(nodes)) + nodes
    assert "fields" in refusal(graph, operators, ModelTooLarge, Limits(fields=10_000)).message


def in_attribute(content: bytes) -> bytes:
    """A model whose one node has one attribute, of this content."""
    for tag in (b"\x2a", b"\x0a", b"\x3a"):  # NodeProto.attribute, GraphProto.node, ModelProto.graph
        content = tag + varint(len(content)) + content
    return content


INTS, FLOATS = b"\x40\x80\x01", b"\x3d\x00\x00\x80\x40"  # 128 in AttributeProto.ints, 4.0 in floats


@pytest.mark.parametrize("entry", [INTS, FLOATS, b"\x40" + b"\xff" * 9 + b"\x01"])
def test_lists_of_numbers_have_a_bound_of_their_own(entry: bytes) -> None:
    limits = Limits(fields=10, numbers=5000)
    walk(in_attribute(entry * 5000), limits)
    with pytest.raises(ModelTooLarge, match="more than 5000 entries") as caught:
        walk(in_attribute(entry * 5001), limits)
    assert caught.value.fix


def test_entries_of_several_lists_are_counted_together() -> None:
    walk(in_attribute(INTS * 300 + FLOATS * 200), Limits(fields=10, numbers=500))
    with pytest.raises(ModelTooLarge, match="entries"):
        walk(in_attribute(INTS * 300 + FLOATS * 201), Limits(fields=10, numbers=500))
    with pytest.raises(ModelTooLarge, match="fields"):  # each change of the list is a field again
        walk(in_attribute((INTS + FLOATS) * 10), Limits(fields=10, numbers=500))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(b"\x45\x00\x00\x00\x00", id="ints of another wire type: unknown to protobuf"),
        pytest.param(b"\x78\x01", id="a number that no attribute has"),
        pytest.param(b"\x18\x01", id="a single number, written again and again"),
        pytest.param(b"\x4a\x00", id="strings"),
    ],
)
def test_only_lists_of_numbers_pass_the_bound_of_fields(entry: bytes) -> None:
    with pytest.raises(ModelTooLarge, match="fields") as caught:
        walk(in_attribute(entry * 100), Limits(fields=50, numbers=5000))
    assert "50" in caught.value.message


@pytest.mark.parametrize("tail", [b"\x40", b"\x40\x80", b"\x40" + b"\x80" * 11, b"\x3d\x00\x00"])
def test_a_list_of_numbers_that_breaks_off_is_malformed(tail: bytes) -> None:
    with pytest.raises(MalformedModel) as caught:
        walk(in_attribute(INTS * 40 + tail), Limits())
    assert caught.value.fix


def test_the_bound_of_entries_counts_what_protobuf_decodes() -> None:
    random = np.random.default_rng(3)
    ints = random.integers(-(2**62), 2**62, 400) >> random.integers(0, 62, 400)
    attribute = helper.make_attribute("a", ints.tolist())
    node = onnx.NodeProto(attribute=[attribute, helper.make_attribute("b", random.random(300).tolist())])
    data = onnx.ModelProto(graph=onnx.GraphProto(node=[node])).SerializeToString()
    walk(data, Limits(numbers=700))
    with pytest.raises(ModelTooLarge):
        walk(data, Limits(numbers=699))
    assert len(onnx.ModelProto.FromString(data).graph.node[0].attribute[0].ints) == 400


def test_a_forest_with_more_numbers_than_fields_are_permitted_is_read() -> None:
    attributes = forest(np.random.default_rng(5), 8, 6, 5, 3)
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2], **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name=name) for name in ("label", "p")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    limits = Limits(fields=2000)
    assert sum(len(column) for column in attributes.values()) > 4 * limits.fields
    loaded = load(model, CompileOptions(), OPERATORS, limits).graph
    assert loaded.type(loaded.outputs[1]).dims == (4, 3)
    assert "numbers" in refusal(model, OPERATORS, ModelTooLarge, Limits(fields=2000, numbers=5000)).message


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_deep_nesting_is_refused(operators: Operators) -> None:
    graph = b""
    for _ in range(60):
        attribute = b"\x32" + varint(len(graph)) + graph
        node = b"\x2a" + varint(len(attribute)) + attribute
        graph = b"\x0a" + varint(len(node)) + node
    assert "nested" in refusal(b"\x3a" + varint(len(graph)) + graph, operators, ModelTooLarge).message


def test_a_name_that_is_not_text_is_refused(operators: Operators, make_model: Maker) -> None:
    data = make_model([helper.make_node("Relu", ["x"], ["y"], name="qqqq")], {"x": [4]}, ["y"]).replace(
        b"qqqq", b"\xff\xfe\xff\xfe"
    )
    refusal(data, operators, MalformedModel)


def test_an_attribute_without_a_known_type_is_refused(operators: Operators, make_model: Maker) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    node.attribute.append(onnx.AttributeProto(name="a", type=onnx.AttributeProto.UNDEFINED))
    refusal(make_model([node], {"x": [4]}, ["y"]), operators, MalformedModel)


def test_the_same_bytes_have_the_same_digest(operators: Operators, make_model: Maker, tmp_path: Path) -> None:
    data = make_model(RELU, {"x": [4]}, ["y"])
    (tmp_path / "m.onnx").write_bytes(data)
    assert (
        load(data, CompileOptions(), operators).digest == load(tmp_path / "m.onnx", CompileOptions(), operators).digest
    )


@pytest.mark.parametrize(
    "make", [lambda p: os.mkfifo(p), lambda p: p.mkdir(), lambda p: None], ids=["pipe", "folder", "nothing"]
)
def test_a_model_path_that_is_no_file_is_refused(
    make: Callable[[Path], object], operators: Operators, tmp_path: Path
) -> None:
    make(tmp_path / "m.onnx")
    refusal(tmp_path / "m.onnx", operators, MalformedModel)


WEIGHTS = np.arange(4, dtype=np.float32)


def external(location: str, **entries: object) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return with_tensor(tensor)


@pytest.mark.parametrize(
    ("location", "entries"),
    [
        ("w.bin", {}),
        ("sub/w.bin", {}),
        ("./w.bin", {"offset": 0, "length": 16}),
        ("shifted.bin", {"offset": 7, "length": 16}),
        ("sub\\w.bin", {}),
        (".\\sub\\w.bin", {}),
        ("hard.bin", {}),
        ("linked/w.bin", {}),
    ],
)
def test_external_data_is_mapped(
    location: str, entries: Mapping[str, object], operators: Operators, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("w.bin", "sub/w.bin"):
        (tmp_path / name).write_bytes(WEIGHTS.tobytes())
    (tmp_path / "shifted.bin").write_bytes(b"1234567" + WEIGHTS.tobytes())
    os.link(tmp_path / "w.bin", tmp_path / "hard.bin")
    (tmp_path / "linked").symlink_to("sub")
    (tmp_path / "m.onnx").write_bytes(external(location, **entries))
    (constant,) = load(tmp_path / "m.onnx", CompileOptions(), operators).graph.constants.values()
    np.testing.assert_array_equal(constant, WEIGHTS)
    assert not constant.flags.writeable


@pytest.mark.parametrize("inside", ["", "onnx"])
def test_a_model_in_a_cache_of_links_has_its_data_there(operators: Operators, tmp_path: Path, inside: str) -> None:
    """As huggingface_hub lays it out: links of a snapshot into one folder of blobs."""
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/0123" / inside
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, content in (("m.onnx", external("m.onnx_data")), ("m.onnx_data", WEIGHTS.tobytes())):
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        (snapshot / name).symlink_to(Path(os.path.relpath(blobs, snapshot)) / digest)
    (constant,) = load(snapshot / "m.onnx", CompileOptions(), operators).graph.constants.values()
    np.testing.assert_array_equal(constant, WEIGHTS)
    (snapshot / "m.onnx_data").unlink()
    (snapshot / "m.onnx_data").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(WEIGHTS.tobytes())
    assert "does not lie below" in refusal(snapshot / "m.onnx", operators, MalformedModel).message


def with_tensors(*locations: str) -> bytes:
    """A model that adds tensors which lie in files of these names."""
    model = onnx.ModelProto.FromString(external(locations[0]))
    (first,) = model.graph.initializer
    for number, location in enumerate(locations[1:]):
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(first)
        tensor.name = f"more{number}"
        tensor.external_data[0].value = location
        model.graph.node.add(op_type="Add", input=["w", tensor.name], output=[f"sum{number}"])
        model.graph.output.add().CopyFrom(model.graph.output[0])
        model.graph.output[-1].name = f"sum{number}"
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("locations", "sent", "found"),
    [
        (("weights/w.bin",), ("w.bin",), True),  # the sender left the folder away
        (("weights\\w.bin",), ("weights/w.bin",), True),
        (("weights\\w.bin",), ("w.bin",), True),
        (("weights/w.bin", "weights/w.bin"), ("w.bin",), True),
        (("weights/w.bin", "weights\\w.bin"), ("w.bin",), True),
        (("weights/w.bin", "w.bin"), ("w.bin", "weights/w.bin"), True),
        (("weights/w.bin",), ("other/w.bin",), False),
        (("weights/w.bin",), ("v.bin",), False),
        (("a/w.bin", "b/w.bin"), ("w.bin",), False),
        (("w.bin", "b/w.bin"), ("w.bin",), False),
        (("b/w.bin", "w.bin"), ("w.bin",), False),
    ],
)
def test_data_that_came_is_found_by_its_path_or_by_a_last_name_that_only_one_path_has(
    locations: tuple[str, ...], sent: tuple[str, ...], found: bool, operators: Operators, tmp_path: Path
) -> None:
    (tmp_path / "blob").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "m.onnx").write_bytes(with_tensors(*locations))
    data = dict.fromkeys(sent, tmp_path / "blob")
    if found:
        load(tmp_path / "m.onnx", CompileOptions(), operators, data=data)
        return
    with pytest.raises(MalformedModel) as caught:
        load(tmp_path / "m.onnx", CompileOptions(), operators, data=data)
    assert f";filename={locations[-1]}'" in caught.value.fix


def test_no_path_of_a_model_becomes_a_part_of_a_command(operators: Operators, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(external("a'; rm -r x; '"))
    with pytest.raises(MalformedModel) as caught:
        load(tmp_path / "m.onnx", CompileOptions(), operators, data={})
    assert caught.value.fix.endswith("-F 'data=@FILE;filename=PATH'")


def test_external_data_of_a_mapping_counts_into_the_digest(operators: Operators, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "m.onnx").write_bytes(external("sub/w.bin"))
    given = {"sub/w.bin": tmp_path / "blob"}
    loaded = load(tmp_path / "m.onnx", CompileOptions(), operators, data=given)
    (constant,) = loaded.graph.constants.values()
    np.testing.assert_array_equal(constant, WEIGHTS)
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("m.onnx", "blob")]
    assert loaded.digest == bundle_digest(digests[0], {"sub/w.bin": digests[1]})


def test_files_beside_a_model_that_came_without_data_are_not_looked_into(operators: Operators, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "m.onnx").write_bytes(external("w.bin"))
    with pytest.raises(MalformedModel, match="none of the files that came with the model"):
        load(tmp_path / "m.onnx", CompileOptions(), operators, data={})


@pytest.mark.parametrize(
    ("location", "entries"),
    [
        ("../w.bin", {}),
        ("sub/../../w.bin", {}),
        ("ABSOLUTE", {}),
        ("link.bin", {}),
        ("circle", {}),
        ("linked\\..\\..\\w.bin", {}),
        ("\\w.bin", {}),
        ("pipe", {}),
        ("sub", {}),
        ("", {}),
        (".", {}),
        ("gone.bin", {}),
        ("w\0.bin", {}),
        ("n" * 5000, {}),
        ("w.bin", {"offset": 4}),
        ("w.bin", {"offset": -4}),
        ("w.bin", {"offset": "9" * 30}),
        ("w.bin", {"offset": "0x0"}),
        ("w.bin", {"length": 12}),
        ("w.bin", {"length": 10**17}),
        ("short.bin", {}),
        ("/dev/zero", {}),
    ],
)
def test_external_data_outside_the_folder_or_of_other_size_is_refused(
    location: str, entries: Mapping[str, object], operators: Operators, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "w.bin", folder / "w.bin", folder / "sub" / "w.bin", folder / "first.bin"):
        path.write_bytes(WEIGHTS.tobytes())
    (folder / "short.bin").write_bytes(b"123")
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "circle").symlink_to("circle")
    (folder / "linked").symlink_to(folder / "sub")
    os.mkfifo(folder / "pipe")
    (folder / "m.onnx").write_bytes(
        external(str(tmp_path / "w.bin") if location == "ABSOLUTE" else location, **entries)
    )
    refusal(folder / "m.onnx", operators, MalformedModel)


def test_external_data_of_a_model_given_as_bytes_is_refused(operators: Operators) -> None:
    assert "another file" in refusal(external("w.bin"), operators, MalformedModel).message


def test_external_data_in_an_attribute_is_checked_too(operators: Operators, make_model: Maker, tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../w.bin")
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["x", "w"], ["y"])]
    (tmp_path / "m.onnx").write_bytes(make_model(nodes, {"x": [4]}, ["y"]))
    refusal(tmp_path / "m.onnx", operators, MalformedModel)


def test_constants_survive_deletion_of_nothing_but_the_protobuf(operators: Operators) -> None:
    tensor = numpy_helper.from_array(WEIGHTS, "w")
    graph = load(with_tensor(tensor), CompileOptions(), operators).graph
    np.testing.assert_array_equal(next(iter(graph.constants.values())), WEIGHTS)
