from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tilewright
from service.jobs.lifecycle.attestation import Signer
from tilewright import loading
from tilewright.errors import NotGenuine, UsageError

LOADER = """
class ArtifactError(Exception):
    def __init__(self, message, fix):
        self.message, self.fix = message, fix

class Model:
    made = []
    def __init__(self, path, lanes=None, verify=True):
        if not verify:
            raise ArtifactError("too old", "get a new one")
        self.path, self.lanes = path, lanes
        self.made.append(self)
"""


def make(path: Path, loader: str = LOADER, version: object = 1, digest: str = "") -> Path:
    """An artifact that holds no more than its loader."""
    digest = digest or hashlib.sha256(loader.encode()).hexdigest()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "manifest.json", json.dumps({"format_version": version, "files": {"loader.py": {"sha256": digest}}})
        )
        archive.writestr("loader.py", loader)
    return path


def test_the_artifacts_own_loader_is_used_and_executed_once(tmp_path: Path) -> None:
    first = tilewright.load(make(tmp_path / "a.tw"), lanes=3)
    second = tilewright.load(make(tmp_path / "b.tw"))
    other = tilewright.load(make(tmp_path / "c.tw", LOADER + "# newer\n"))
    assert (first.path, first.lanes) == (tmp_path / "a.tw", 3)  # type: ignore[attr-defined]
    assert type(first) is type(second) is not type(other)
    assert len(type(first).made) == 2  # type: ignore[attr-defined]


def test_an_extracted_folder_is_loaded_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(make(tmp_path / "a.tw")) as archive:
        archive.extractall(tmp_path / "folder")
    assert tilewright.load(tmp_path / "folder").path == tmp_path / "folder"  # type: ignore[attr-defined]


def test_the_loaders_refusal_is_a_usage_error_with_its_fix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too old") as refusal:
        tilewright.load(make(tmp_path / "a.tw"), verify=False)
    assert refusal.value.fix == "get a new one"


def test_a_format_version_not_known_is_refused_before_anything_of_it_runs(tmp_path: Path) -> None:
    poison = "raise SystemExit('executed')"
    for version in (2, "1", None):
        with pytest.raises(UsageError, match=f"format version {version!r}, this tilewright loads 1"):
            tilewright.load(make(tmp_path / "a.tw", poison, version=version))


def test_a_loader_that_the_manifest_does_not_promise_never_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"loader.py in .* is damaged"):
        tilewright.load(make(tmp_path / "a.tw", "raise SystemExit('executed')", digest="00"))


def test_a_loader_that_fails_is_not_kept(tmp_path: Path) -> None:
    before = dict(loading._loaders)
    with pytest.raises(ZeroDivisionError):
        tilewright.load(make(tmp_path / "a.tw", "1 / 0"))
    assert loading._loaders == before


def test_the_number_of_threads_reaches_each_loader_and_those_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_loaders", {})
    monkeypatch.setenv("TILEWRIGHT_THREADS", "7")
    more = "\nset_to = []\n\ndef set_threads(threads):\n    set_to.append(threads)\n"
    of_now, of_earlier = (make(tmp_path / name, LOADER + text) for name, text in (("a.tw", more), ("b.tw", "")))
    tilewright.load(of_earlier)
    loader = sys.modules[type(tilewright.load(of_now)).__module__]
    for threads in (2, None):
        tilewright.set_threads(threads)
        assert os.environ.get("TILEWRIGHT_THREADS") == (threads and str(threads))
    assert loader.set_to == [2, None]
    for wrong in (0, True, "2"):
        with pytest.raises(UsageError, match=f"threads is {wrong!r}") as refused:
            tilewright.set_threads(wrong)  # type: ignore[arg-type]
        assert "1 or more" in refused.value.fix


def test_what_is_no_artifact_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("manifest.json", "[]")
    (tmp_path / "empty").mkdir()
    for name in ("text", "empty", "missing"):
        with pytest.raises(UsageError, match="not an artifact") as refusal:
            tilewright.load(tmp_path / name)
        assert "give a .tw file" in refusal.value.fix
    with pytest.raises(UsageError, match=r"manifest of .* is damaged"):
        tilewright.load(tmp_path / "zip")


def test_importing_tilewright_does_not_load_numpy() -> None:
    program = "import sys, tilewright; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def statement_of(artifact: Path, signer: Signer) -> dict[str, Any]:
    """What a server that has this key says about a file."""
    subject = [{"name": "model.tw", "digest": {"sha256": hashlib.sha256(artifact.read_bytes()).hexdigest()}}]
    return dict(signer.envelope({"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicate": {}}))


def test_what_the_signer_states_is_loaded_from_a_copy_that_nobody_can_change(tmp_path: Path) -> None:
    signer, artifact = Signer(tmp_path / "key"), make(tmp_path / "a.tw", LOADER + "# signed\n")
    envelope = statement_of(artifact, signer)
    (tmp_path / "a.tw.intoto.json").write_text(json.dumps(envelope))
    whole = artifact.read_bytes()
    for given in ({}, {"attestation": envelope}, {"attestation": tmp_path / "a.tw.intoto.json"}):
        model = tilewright.load(artifact, 3, signer=signer.public.pem, **given)
        copy: Path = model.path  # type: ignore[attr-defined]
        artifact.write_bytes(b"another")
        assert copy.read_bytes() == whole
        with pytest.raises(PermissionError), copy.open("r+b") as file:
            file.write(b"another")
        artifact.write_bytes(whole)
        type(model).made.clear()  # type: ignore[attr-defined]
        del model
        gc.collect()
        assert not copy.exists()


@pytest.mark.parametrize(
    "case", ["changed", "of another", "another signer", "no statement", "no JSON", "folder", "no key"]
)
def test_no_code_runs_of_what_the_signer_does_not_state(case: str, tmp_path: Path) -> None:
    signer, artifact = Signer(tmp_path / "key"), make(tmp_path / "a.tw", "raise SystemExit('executed')")
    beside = tmp_path / "a.tw.intoto.json"
    beside.write_text(json.dumps(statement_of(artifact, signer)))
    pem: str | None = signer.public.pem
    error: type[Exception] = UsageError
    more: dict[str, Any] = {}
    match case:
        case "changed":
            make(artifact, "raise SystemExit('executed')  # by another")
            error = NotGenuine
        case "of another":
            beside.write_text(json.dumps(statement_of(make(tmp_path / "b.tw"), signer)))
            error = NotGenuine
        case "another signer":
            pem, error = Signer(tmp_path / "other").public.pem, NotGenuine
        case "no statement":
            beside.unlink()
        case "no JSON":
            beside.write_text("{")
        case "folder":
            artifact.unlink()
            artifact.mkdir()
        case "no key":
            pem, more = None, {"attestation": beside}
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(error) as refusal:
        tilewright.load(artifact, signer=pem, **more)
    assert refusal.value.fix  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == len(before)
