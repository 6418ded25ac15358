from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.errors import UsageError
from tilewright.external import external_data
from tilewright.package import ONNX, ZIP, bundle_digest, package

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


def naming(*locations: str) -> bytes:
    """An ONNX file whose weights lie there."""
    made = onnx.ModelProto()
    for location in locations:
        tensor = made.graph.initializer.add(name="w", data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
    return bytes(made.SerializeToString())


def packed(path: Path, data: Sequence[str | Path] = ()) -> dict[str, bytes]:
    """The files that are sent for a model."""
    with zipfile.ZipFile(io.BytesIO(b"".join(package(path, data).read()))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_bytes_and_a_file_are_sent_as_they_are(tmp_path: Path) -> None:
    path = model(tmp_path)
    for given in (path, str(path), path.read_bytes()):
        sent = package(given)
        assert (sent.media_type, sent.digest, sent.sha256) == (ONNX, sha256(path.read_bytes()), sent.digest)
        assert b"".join(sent.read()) == path.read_bytes()
        assert sent.size == path.stat().st_size


def test_nothing_is_sent_that_only_looks_like_the_name_of_external_data(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    decoy = "\n\x08location\x12\x06secret"
    made = onnx.helper.make_model(onnx.helper.make_graph([], decoy, [], []), doc_string=decoy)
    inside = made.graph.initializer.add(name="w", raw_data=decoy.encode())  # its data_location says: in the model
    inside.external_data.add(key="location", value="secret")
    made.metadata_props.add(key="location", value="secret")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert package(tmp_path / "m.onnx").media_type == ONNX


def test_a_file_that_is_no_onnx_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(tmp_path, "w.bin").read_bytes()[:-7])
    with pytest.raises(UsageError, match="is no ONNX file: the field at byte 2 ends behind") as caught:
        package(tmp_path / "m.onnx")
    assert "cut off" in caught.value.fix


@pytest.mark.parametrize("inside", ["", "onnx"])
def test_a_model_in_a_cache_of_links_goes_with_its_data(tmp_path: Path, inside: str) -> None:
    """As huggingface_hub lays it out: links of a snapshot into one folder of blobs."""
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/0123" / inside
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    files = {"m.onnx": naming("m.onnx_data"), "m.onnx_data": b"weights"}
    for name, content in files.items():
        (blobs / sha256(content)).write_bytes(content)
        (snapshot / name).symlink_to(Path(os.path.relpath(blobs, snapshot)) / sha256(content))
    for data in ((), [snapshot / "m.onnx_data"]):
        assert packed(snapshot / "m.onnx", data) == files
    (tmp_path / "secret").write_text("mine")
    (snapshot / "m.onnx_data").unlink()
    (snapshot / "m.onnx_data").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="not below its folder"):
        package(snapshot / "m.onnx")
    assert packed(snapshot / "m.onnx", [snapshot / "m.onnx_data"])["m.onnx_data"] == b"mine", "given explicitly"


def test_links_inside_the_folder_and_hard_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/w.bin").write_bytes(b"weights")
    (tmp_path / "linked").symlink_to("sub")
    os.link(tmp_path / "sub/w.bin", tmp_path / "hard.bin")
    (tmp_path / "m.onnx").write_bytes(naming("linked/w.bin", "hard.bin"))
    assert packed(tmp_path / "m.onnx").keys() == {"m.onnx", "linked/w.bin", "hard.bin"}


def test_data_that_are_given_from_elsewhere_have_the_one_name_that_the_model_has_for_them(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "w.bin").write_bytes(b"weights")
    path = tmp_path / "net/m.onnx"
    path.write_bytes(naming("weights/w.bin", "v.bin"))
    assert packed(path, [tmp_path / "w.bin"])["weights/w.bin"] == b"weights"
    path.write_bytes(naming("a/w.bin", "b/w.bin"))
    with pytest.raises(UsageError, match=r"which names 2 files 'w.bin'"):
        package(path, [tmp_path / "w.bin"])


def test_names_that_were_saved_on_windows_are_those_of_the_files_here(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/w.bin").write_bytes(b"weights")
    (tmp_path / "m.onnx").write_bytes(naming("weights\\w.bin"))
    assert packed(tmp_path / "m.onnx") == {"m.onnx": naming("weights\\w.bin"), "weights/w.bin": b"weights"}
    zipped = tmp_path / "w.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, content in (("net\\m.onnx", naming("weights\\w.bin")), ("net\\weights\\w.bin", b"weights")):
            archive.writestr(name, content)
    assert package(zipped).digest == package(tmp_path / "m.onnx").digest


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


@pytest.mark.parametrize("location", ["../secret", "..\\secret", "/etc/hostname", "link", "w\0"])
def test_a_model_cannot_name_files_outside_its_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_text("mine")
    folder = tmp_path / "net"
    folder.mkdir()
    path = model(folder, "w.bin")
    (folder / "link").symlink_to(tmp_path / "secret")
    path.write_bytes(naming(location))
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
