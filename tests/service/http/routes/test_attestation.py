"""Signed statements about artifacts: what they say, and that nothing else passes for one."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.config import Settings
from service.errors import NotReady
from service.jobs.lifecycle.attestation import Signer, encoded
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tilewright.attestation import opened, verify
from tilewright.errors import NotGenuine, UsageError

DATA = b"an artifact"


@pytest.fixture
def attested(client: TestClient, finish: Callable[..., lease.Claim]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job, and the envelope of its artifact."""
    form = {"options": '{"threads": 2}'}
    job = client.post("/compile", files={"model": b"m", "samples": ("a.npz", b"npz")}, data=form).json()
    finish(DATA)
    answer = client.get(f"/artifacts/{job['artifact_id']}/attestation")
    assert answer.status_code == 200
    return client.get(f"/jobs/{job['id']}").json(), answer.json()


def test_the_encoding_is_that_of_the_specification() -> None:
    """The test vector of https://github.com/secure-systems-lab/dsse/blob/master/protocol.md."""
    assert encoded("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@any_database
def test_an_artifact_is_verified_offline_and_another_file_is_not(
    client: TestClient, settings: Settings, attested: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    job, envelope = attested
    public = client.get("/signing-key").json()
    assert envelope["signatures"][0]["keyid"] == public["keyid"]
    file = tmp_path / "model.tw"
    file.write_bytes(DATA)
    statement = verify(file, envelope, public["public_key"])
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    (subject,) = statement["subject"]
    assert subject == {"name": f"{job['artifact_id']}.tw", "digest": {"sha256": hashlib.sha256(DATA).hexdigest()}}
    build, run = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert build["externalParameters"] == {"model": job["model"], "options": job["options"]}
    assert [one["digest"]["sha256"] for one in build["resolvedDependencies"]] == [
        job["model"],
        hashlib.sha256(b"npz").hexdigest(),
    ]
    assert run["metadata"]["invocationId"] == job["id"]
    assert run["metadata"]["finishedOn"][:19] == job["finished_at"][:19]
    (receipt,) = run["byproducts"]
    assert json.loads(base64.b64decode(receipt["content"]))["latency_s"] == 0.5
    assert client.get(f"/artifacts/{job['artifact_id']}/attestation").json() == envelope, "the same at every request"

    file.write_bytes(DATA + b"\0")
    with pytest.raises(NotGenuine, match="has the SHA-256"):
        verify(file, envelope, public["public_key"])
    stranger = Signer(tmp_path / "other").public
    with pytest.raises(NotGenuine, match="no signature"):
        opened(envelope, stranger.pem)


@any_database
def test_what_was_changed_after_it_was_signed_is_refused(
    client: TestClient, attested: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    _, envelope = attested
    pem = client.get("/signing-key").json()["public_key"]
    statement = opened(envelope, pem)
    changes: list[dict[str, Any]] = [
        {"payload": base64.b64encode(json.dumps({**statement, "subject": []}).encode()).decode()},
        {"payloadType": "application/json"},
        {"signatures": []},
        {"signatures": [{"sig": base64.b64encode(bytes(64)).decode()}]},
        {"signatures": [{"sig": "%"}]},
        {"payload": None},
    ]
    for change in changes:
        with pytest.raises(NotGenuine):
            opened({**copy.deepcopy(envelope), **change}, pem)
    for no_key in ("", pem.replace("MC", "MD"), "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"):
        with pytest.raises(UsageError):
            opened(envelope, no_key)


@any_database
def test_statements_are_of_artifacts_that_are_made_and_are_nobody_elses(
    client: TestClient, stranger: dict[str, str], attested: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    job, _ = attested
    path = f"/artifacts/{job['artifact_id']}/attestation"
    assert client.get(path, headers=stranger).status_code == 404
    waiting = client.post("/compile", files={"model": b"other"}).json()["artifact_id"]
    assert client.get(f"/artifacts/{waiting}/attestation").json()["code"] == "job_not_finished"


def test_the_key_is_made_once_for_its_user_alone_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "signing_key"
    first, second = Signer(file), Signer(file)
    assert first.public == second.public == Signer(file).public
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["signing_key"]
    statement = {"a": 1}
    assert first.envelope(statement) == second.envelope(statement)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_holds_no_key_is_refused_with_how_to_make_one(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "signing_key"
    file.write_bytes(content)
    with pytest.raises(NotReady) as caught:
        _ = Signer(file).public
    assert "openssl genpkey" in caught.value.fix
    assert file.read_bytes() == content
