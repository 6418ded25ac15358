"""Signed statements as they go over the wire."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

KEY_ID_EXAMPLE = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
SIGNATURE_EXAMPLE: dict[str, Any] = {"keyid": KEY_ID_EXAMPLE, "sig": "bm90IGEgc2lnbmF0dXJl"}


class SignatureOut(BaseModel):
    """Of the payload, over DSSE's pre-authentication encoding."""

    keyid: str = Field(description="`keyid` of `GET /signing-key`.")
    sig: str = Field(description="Base64.")


class EnvelopeOut(BaseModel):
    """A DSSE envelope (https://github.com/secure-systems-lab/dsse)."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "payloadType": "application/vnd.in-toto+json",
                "payload": "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ==",
                "signatures": [SIGNATURE_EXAMPLE],
            }
        }
    )

    payloadType: str  # noqa: N815 - the standard's name
    payload: str = Field(description="Base64 of an in-toto statement whose predicate is SLSA's provenance, version 1.")
    signatures: list[SignatureOut]


class SigningKeyOut(BaseModel):
    """The public half of the key that statements are signed with."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "keyid": KEY_ID_EXAMPLE,
                "algorithm": "ed25519",
                "public_key": "-----BEGIN PUBLIC KEY-----\nMCow...\n-----END PUBLIC KEY-----\n",
            }
        }
    )

    keyid: str = Field(description="SHA-256 (hex) of the key's DER form.")
    algorithm: Literal["ed25519"]
    public_key: str = Field(description="PEM.")
