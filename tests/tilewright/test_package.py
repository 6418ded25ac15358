from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.errors import UsageError
from tilewright.package import ONNX, ZIP, bundle_digest, external_data, package

WEIGHTS = np.arange(600, dtype=np.float32)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def model(folder: Path, *locations: str) -> Path:
    """An ONNX file whose weights lie in files of these names."""
    tensors = []
    for index, location in enumerate(locations):
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        (folder / location).write_bytes((WEIGHTS + index).tobytes())
        tensor = onnx.numpy_helper.from_array(WEIGHTS, f"w{index}")
        onnx.external_data_helper.set_external_data(tensor, location, offset=0, length=WEIGHTS.nbytes)
        tensor.ClearField("raw_data")
        tensors.append(tensor)
    graph = onnx.helper.make_graph([], "g", [], [], initializer=tensors)
    path = folder / "m.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path


def test_bytes_and_a_file_are_sent_as_they_are(tmp_path: Path) -> None:
    path = model(tmp_path)
    for given in (path, str(path), path.read_bytes()):
        sent = package(given)
        assert (sent.media_type, sent.digest, sent.sha256) == (ONNX, sha256(path.read_bytes()), sent.digest)
        assert b"".join(sent.read()) == path.read_bytes()
        assert sent.size == path.stat().st_size


def test_the_names_of_external_data_are_read_without_parsing_the_model(tmp_path: Path) -> None:
    long = "a" * 200 + ".bin"
    path = model(tmp_path, "w.bin", "sub/ünïcode weights", long)
    assert external_data(path) == ["w.bin", "sub/ünïcode weights", long]
    tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    assert [onnx.external_data_helper.ExternalDataInfo(tensor).location for tensor in tensors] == external_data(path)


def test_a_model_goes_with_the_data_that_it_names_as_a_zip_that_is_never_written(tmp_path: Path) -> None:
    path = model(tmp_path, "w.bin", "sub/v.bin")
    (tmp_path / "private.txt").write_text("not for sending")
    sent = package(path)
    body = b"".join(sent.read())
    assert (sent.media_type, sent.size, sent.sha256) == (ZIP, len(body), sha256(body))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files == {name: (tmp_path / name).read_bytes() for name in ("m.onnx", "sub/v.bin", "w.bin")}
    data = {name: sha256(files[name]) for name in ("w.bin", "sub/v.bin")}
    assert sent.digest == bundle_digest(sha256(files["m.onnx"]), data)
    assert package(path) == sent


@pytest.mark.parametrize("start", [0, 1, 40, 2399, 2500, 5000])
def test_any_part_of_the_body_can_be_read(tmp_path: Path, start: int) -> None:
    sent = package(model(tmp_path, "w.bin", "v.bin"))
    body = b"".join(sent.read())
    assert b"".join(sent.read(start)) == body[start:]
    assert b"".join(sent.read(start, 300)) == body[start : start + 300]


def test_a_folder_and_a_zip_of_it_are_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    path = model(folder, "w.bin")
    zipped = tmp_path / "net.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "net/m.onnx")
        archive.write(folder / "w.bin", "net/w.bin")
    assert package(folder).digest == package(zipped).digest == package(path).digest
    assert b"".join(package(zipped).read()) == zipped.read_bytes()


def test_data_that_are_named_by_the_caller_are_sent_too(tmp_path: Path) -> None:
    path = model(tmp_path)
    (tmp_path / "extra.bin").write_bytes(b"1234")
    sent = package(path, data=[tmp_path / "extra.bin"])
    assert sent.digest == bundle_digest(sha256(path.read_bytes()), {"extra.bin": sha256(b"1234")})


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "link"])
def test_a_model_cannot_name_files_outside_its_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_text("mine")
    folder = tmp_path / "net"
    folder.mkdir()
    path = model(folder, "w.bin")
    (folder / "link").symlink_to(tmp_path / "secret")
    tensor = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(tensor.SerializeToString())
    with pytest.raises(UsageError, match="not below its folder"):
        package(path)


def test_data_that_are_missing_are_left_for_the_server_to_name(tmp_path: Path) -> None:
    path = model(tmp_path, "w.bin")
    (tmp_path / "w.bin").unlink()
    assert package(path).media_type == ONNX


@pytest.mark.parametrize("names", [(), ("a.onnx", "b.onnx")])
def test_a_folder_or_zip_without_exactly_one_model_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "net.zip", "w") as archive:
        archive.writestr("readme", "")
        for name in names:
            (folder / name).write_bytes(b"onnx")
            archive.writestr(name, "onnx")
    for given in (folder, tmp_path / "net.zip"):
        with pytest.raises(UsageError, match="holds not one ONNX file"):
            package(given)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = model(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        package(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="no such file"):
        package(path, data=[tmp_path / "none.bin"])
    with pytest.raises(UsageError, match="not below"):
        package(path, data=["/etc/hostname"])
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4" + bytes(100) + b"PK\5\6" + bytes(18))
    with pytest.raises(UsageError):
        package(tmp_path / "broken.zip")
