from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, ModelProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from tests.seeds import each
from tests.tilewright.messages import varint
from tilewright.external import external_data

DECOY = b"\n\x08location\x12\x05decoy"
"""The bytes of an entry of external data where there is none."""


def oracle(message: Any) -> Iterator[str]:
    """The locations of all tensors that lie in other files, as onnx reads them, in the order of the file."""
    if isinstance(message, TensorProto):
        if uses_external_data(message) and (location := ExternalDataInfo(message).location):
            yield location
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for inner in value if descriptor.is_repeated else [value]:
                yield from oracle(inner)


def fill_tensor(tensor: TensorProto, chance: random.Random) -> None:
    tensor.name = chance.choice(["w", DECOY.decode(), ""])
    tensor.doc_string = chance.choice(["", DECOY.decode()])
    if chance.random() < 0.3:
        tensor.raw_data = DECOY * chance.randint(1, 3)
    if chance.random() < 0.3:
        tensor.string_data.append(DECOY)
    entries = [("location", f"dir/w{chance.randint(0, 9)} ü.bin"), ("offset", "4096"), ("length", "12")]
    if chance.random() < 0.2:
        entries.append(("location", "the last one counts"))
    if chance.random() < 0.3:
        chance.shuffle(entries)
    for key, value in entries[: chance.randint(0, 4)]:
        tensor.external_data.add(key=key, value=value)
    if chance.random() < 0.8:
        tensor.data_location = chance.choice([TensorProto.EXTERNAL, TensorProto.EXTERNAL, TensorProto.DEFAULT])


def fill_nodes(nodes: Any, chance: random.Random, depth: int) -> None:
    for _ in range(chance.randint(0, 3)):
        node = nodes.add(op_type=chance.choice(["If", DECOY.decode()]), doc_string=chance.choice(["", DECOY.decode()]))
        for _ in range(chance.randint(0, 3)):
            fill_attribute(node.attribute.add(), chance, depth)


def fill_attribute(attribute: AttributeProto, chance: random.Random, depth: int) -> None:
    attribute.name = "a"
    attribute.ints.extend(chance.randint(-5, 1 << 40) for _ in range(chance.randint(0, 3)))
    attribute.floats.extend([1.5] * chance.randint(0, 2))
    attribute.s = chance.choice([b"", DECOY])
    match chance.randint(0, 5):
        case 0:
            fill_tensor(attribute.t, chance)
        case 1:
            fill_tensor(attribute.tensors.add(), chance)
        case 2 if depth:
            fill_graph(attribute.g, chance, depth - 1)
        case 3 if depth:
            fill_graph(attribute.graphs.add(), chance, depth - 1)
        case 4:
            fill_tensor(attribute.sparse_tensor.values, chance)
        case 5:
            fill_tensor(attribute.sparse_tensors.add().indices, chance)


def fill_graph(graph: Any, chance: random.Random, depth: int) -> None:
    graph.name = chance.choice(["", DECOY.decode()])
    fill_nodes(graph.node, chance, depth)
    for _ in range(chance.randint(0, 3)):
        fill_tensor(graph.initializer.add(), chance)
    if chance.random() < 0.5:
        sparse = graph.sparse_initializer.add()
        fill_tensor(sparse.values, chance)
        fill_tensor(sparse.indices, chance)
    if chance.random() < 0.5:
        graph.quantization_annotation.add().quant_parameter_tensor_names.add(key="location", value="decoy")


def random_model(seed: int) -> ModelProto:
    chance = random.Random(seed)
    model = ModelProto(ir_version=10, producer_name=DECOY.decode())
    model.metadata_props.add(key="location", value="decoy")
    fill_graph(model.graph, chance, 3)
    for _ in range(chance.randint(0, 2)):
        function = model.functions.add(name="f")
        fill_nodes(function.node, chance, 2)
        fill_attribute(function.attribute_proto.add(), chance, 1)
    if chance.random() < 0.5:
        training = model.training_info.add()
        fill_graph(training.initialization, chance, 1)
        fill_graph(training.algorithm, chance, 1)
    return model


def written(model: ModelProto, folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


@each(range(300))
def test_the_files_of_a_model_are_those_that_onnx_finds_and_no_others(seed: int, tmp_path: Path) -> None:
    model = random_model(seed)
    assert external_data(written(model, tmp_path)) == list(dict.fromkeys(oracle(model)))


def test_the_models_of_these_tests_name_every_file_and_no_decoy() -> None:
    found = {location for seed in range(300) for location in oracle(random_model(seed))}
    assert found == {*(f"dir/w{number} ü.bin" for number in range(10)), "the last one counts"}


def test_a_message_that_is_cut_off_or_changed_is_refused_or_read_and_never_breaks(tmp_path: Path) -> None:
    chance = random.Random(3)
    path = written(random_model(8), tmp_path)
    content = path.read_bytes()
    refused = 0
    for _ in range(1000):
        changed = bytearray(content if chance.random() < 0.5 else content[: chance.randint(1, len(content))])
        for _ in range(chance.randint(0, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        path.write_bytes(changed)
        try:
            external_data(path)
        except ValueError:
            refused += 1
    assert 300 < refused < 1000


def test_graphs_that_lie_in_each_other_without_end_are_walked(tmp_path: Path) -> None:
    model = ModelProto()
    tensor = model.graph.initializer.add(data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="deep.bin")
    inner = model.graph.SerializeToString()
    for _ in range(3000):  # protobuf itself ends at 100
        for tag in (0x32, 0x2A, 0x0A):  # of an attribute its graph, of a node its attribute, of a graph its node
            inner = bytes([tag]) + varint(len(inner)) + inner
    (tmp_path / "m.onnx").write_bytes(b"\x3a" + varint(len(inner)) + inner)
    assert external_data(tmp_path / "m.onnx") == ["deep.bin"]


@pytest.mark.parametrize(
    "content",
    [
        b"onnx" * 10,
        b"\x3a\x05\x00",
        b"\x3a",
        b"\x00\x00",
        b"\x3a\x04\x2a\x09\x01\x01",
        b"\xff" * 20,
        b"\x3a\x02\x2a\x01",
    ],
)
def test_what_is_no_message_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ValueError, match="byte"):
        external_data(tmp_path / "m.onnx")
    with pytest.raises(DecodeError):
        ModelProto.FromString(content)


def test_an_empty_file_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    assert external_data(tmp_path / "m.onnx") == []
