"""`tilewright attest`, `signer` and `verify`; `tests/service/http/routes` has the service's side."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.jobs.lifecycle.attestation import Signer
from tests.tilewright.fake_server import ARTIFACT
from tilewright.attestation import opened
from tilewright.errors import UsageError

Command = Callable[..., Any]


def test_a_statement_is_fetched_and_checked_without_a_server(command: Command, server: Any, tmp_path: Path) -> None:
    signer, file = Signer(tmp_path / "key"), tmp_path / "model.tw"
    file.write_bytes(b"artifact")
    predicate = {
        "buildDefinition": {"externalParameters": {"model": "9f86"}},
        "runDetails": {"metadata": {"invocationId": "job-1", "finishedOn": "2026-11-21T04:00:24Z"}},
    }
    subject = [{"name": "model.tw", "digest": {"sha256": hashlib.sha256(b"artifact").hexdigest()}}]
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicate": predicate}
    server.answers[f"/artifacts/{ARTIFACT}/attestation"] = signer.envelope(statement)
    server.answers["/signing-key"] = {"public_key": signer.public.pem}
    beside, pem = tmp_path / "model.tw.intoto.json", tmp_path / "lab.pem"
    assert command("attest", ARTIFACT, "-o", beside).exit_code == 0
    assert command("signer").stdout == signer.public.pem
    assert command("signer", "-o", pem, "--json").exit_code == 0
    asked = len(server.seen)

    done = command("verify", file, "--signer", pem)
    assert (done.exit_code, "is genuine: job job-1" in done.stdout) == (0, True), done.output
    assert json.loads(command("verify", file, "--signer", pem, "--json").stdout) == statement
    file.write_bytes(b"another")
    refused = command("verify", file, "--signer", pem, "--attestation", beside, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (5, "not_genuine")
    for missing in ((tmp_path / "none.tw", pem), (file, tmp_path / "none.pem")):
        assert command("verify", missing[0], "--signer", missing[1]).exit_code == 2
    assert len(server.seen) == asked


def test_without_the_package_it_is_said_which_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(UsageError) as caught:
        opened({}, "")
    assert "tilewright[verify]" in caught.value.fix
