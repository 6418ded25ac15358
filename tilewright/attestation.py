"""Is this file the artifact of which a signed statement tells? Checked without a server."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import NotGenuine, UsageError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
SUFFIX = ".intoto.json"
"""Of the file beside an artifact that holds its envelope."""


def verify(artifact: str | Path, envelope: Mapping[str, Any], signer: str | bytes) -> dict[str, Any]:
    """The statement about this file, once its signature is the signer's and the digest in it the file's.

    envelope  DSSE, as `Client.attestation` gave it
    signer    the public key as PEM, as `Client.signer` gave it at a time when the server was trusted

    Raises `NotGenuine`, and `UsageError` for a file or a key that cannot be read, and without the package
    `cryptography`.
    """
    try:
        with Path(artifact).open("rb") as file:
            return verify_bytes(artifact, file.fileno(), envelope, signer)
    except OSError as error:
        raise UsageError(f"{artifact} cannot be read: {error.strerror}", fix="name an artifact") from error


def verify_bytes(
    artifact: str | Path, descriptor: int, envelope: Mapping[str, Any], signer: str | bytes
) -> dict[str, Any]:
    """As `verify`, for the bytes of an open file, from its beginning; `artifact` is its name in messages."""
    statement = opened(envelope, signer)
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
    subjects = statement.get("subject")
    stated = [one.get("digest", {}).get("sha256") for one in subjects] if isinstance(subjects, list) else []
    if found not in stated:
        raise NotGenuine(
            f"{artifact} has the SHA-256 {found}, and the statement is about {', '.join(map(str, stated)) or 'none'}",
            fix="fetch the artifact again, and its own statement",
        )
    return statement


def opened(envelope: Mapping[str, Any], signer: str | bytes) -> dict[str, Any]:
    """The statement in an envelope that this key has signed. Raises as `verify` does."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise UsageError("signatures need the package cryptography", fix="pip install 'tilewright[verify]'") from None
    try:
        key = load_pem_public_key(signer.encode() if isinstance(signer, str) else signer)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"the signer's key is no public key as PEM: {error}", fix="see `tilewright signer`") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("the signer's key is not of ed25519", fix="see `tilewright signer`")
    try:
        kind = envelope["payloadType"]
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = [base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"]]
    except (KeyError, TypeError, AttributeError, binascii.Error, ValueError) as error:
        raise NotGenuine("the statement is in no DSSE envelope", fix="fetch it again: `tilewright attest`") from error
    signed = b" ".join((b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload))
    for signature in signatures:
        try:
            key.verify(signature, signed)
            break
        except InvalidSignature:
            continue
    else:
        raise NotGenuine("no signature of the statement is this signer's", fix="check which server made the artifact")
    statement = json.loads(payload) if kind == PAYLOAD_TYPE else None
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT:
        raise NotGenuine("what was signed is no in-toto statement", fix="use a client of the server's version")
    return statement
