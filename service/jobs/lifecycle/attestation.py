"""Signed statements of where an artifact comes from: in-toto, with SLSA's provenance, in a DSSE envelope.

The signature is ed25519's over DSSE's pre-authentication encoding, so that what was signed is what is parsed. The same
artifact has the same envelope at every request, as long as the key stays.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from compiler.contract import COMPILER_VERSION
from service.blobs.private import make_once
from service.db import jobs
from service.db.engine import Database
from service.db.models import Artifact, Job
from service.db.plain import dumps
from service.errors import NotReady
from service.jobs.lifecycle import find

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD = "urn:tilewright:compile:1"
ENCODING = "DSSEv1"


@dataclass(frozen=True)
class PublicKey:
    """What signatures are checked with: PEM, and as its id the SHA-256 (hex) of its DER form."""

    id: str
    pem: str


class Signer:
    """Signs with the key in a file, which is made when it is missing; read once, when it is first needed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loaded: Ed25519PrivateKey | None = None
        self._lock = threading.Lock()

    @property
    def public(self) -> PublicKey:
        """Raises `NotReady` for a file that holds no such key or cannot be read."""
        key = self._key().public_key()
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return PublicKey(hashlib.sha256(der).hexdigest(), pem.decode())

    def sign(self, content: bytes) -> bytes:
        """The signature of these bytes. Raises `NotReady` as `public` does."""
        return self._key().sign(content)

    def signed(self, content: bytes, signature: bytes) -> bool:
        """Whether this is the signature of these bytes. Raises `NotReady` as `public` does."""
        try:
            self._key().public_key().verify(signature, content)
        except InvalidSignature:
            return False
        return True

    def envelope(self, statement: dict[str, Any]) -> dict[str, Any]:
        """A DSSE envelope around a statement. Raises `NotReady` as `public` does."""
        payload = dumps(statement).encode()
        signature = self.sign(encoded(PAYLOAD_TYPE, payload))
        return {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": self.public.id, "sig": base64.b64encode(signature).decode()}],
        }

    def _key(self) -> Ed25519PrivateKey:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._file)
            return self._loaded


def encoded(kind: str, payload: bytes) -> bytes:
    """What is signed: DSSE v1's pre-authentication encoding (PAE)."""
    return b" ".join((ENCODING.encode(), str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload))


def attest(db: Database, signer: Signer, owner: uuid.UUID, artifact_id: uuid.UUID) -> dict[str, Any]:
    """The signed statement about an artifact. Raises as `find.artifact` does, and `NotReady`."""
    artifact = find.artifact(db, owner, artifact_id)
    return signer.envelope(statement_of(artifact, find.job(db, owner, artifact.job_id).job))


def statement_of(artifact: Artifact, job: Job | jobs.StatusRow) -> dict[str, Any]:
    """What is stated: these bytes were made of this model with these options, by whom, and what was found of them."""
    receipt = artifact.receipt
    samples = [{"name": one["name"], "digest": {"sha256": one["sha256"]}} for one in job.samples or ()]
    version = (receipt.get("report") or {}).get("compiler_version", COMPILER_VERSION)
    return {
        "_type": STATEMENT,
        "subject": [{"name": f"{artifact.id}.tw", "digest": {"sha256": artifact.sha256}}],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"model": job.model_digest, "options": job.options},
                "internalParameters": {"hardware": receipt.get("hardware"), "sandbox": receipt.get("sandbox")},
                "resolvedDependencies": [{"name": "model", "digest": {"sha256": job.model_digest}}, *samples],
            },
            "runDetails": {
                "builder": {"id": "urn:tilewright:worker", "version": {"tilewright": version}},
                "metadata": {
                    "invocationId": str(job.id),
                    "startedOn": _moment(job.started_at),
                    "finishedOn": _moment(job.finished_at),
                },
                "byproducts": [
                    {
                        "name": "receipt",
                        "mediaType": "application/json",
                        "content": base64.b64encode(dumps(receipt).encode()).decode(),
                    }
                ],
            },
        },
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _load(file: Path) -> Ed25519PrivateKey:
    try:
        if not file.exists():
            key = Ed25519PrivateKey.generate()
            make_once(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        loaded = load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise NotReady(f"the signing key {file} cannot be used: {error}", fix=FIX) from error
    if not isinstance(loaded, Ed25519PrivateKey):
        raise NotReady(f"the signing key {file} is not of ed25519", fix=FIX)
    return loaded


FIX = "make it with `openssl genpkey -algorithm ed25519`, for the API's user alone, or name another file"
