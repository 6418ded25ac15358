"""Owners, their keys, what they may have and what they did, as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Owner
from service.http.schemas.common import RequestBody, utc
from service.http.schemas.times import Moment
from service.jobs.accounts.access import OWNER_NAME, ROLES, role_of
from service.jobs.accounts.audit_entries import Entry
from service.jobs.accounts.keys import LONGEST_GRACE_S, Made, Shown
from service.jobs.accounts.quotas import Limits, Use
from service.jobs.operations.owners import Removal, Seen

KEY_ID = "019aa1e0-2f11-7c3a-9b52-7d41c0e9a6f3"
NAME_PATTERN = r"^[^\u0000-\u001f\u007f/]{1,100}$"
MOST = 1 << 62
MOST_SECONDS = 1e12

Role = Literal["reader", "compiler", "manager", "operator"]
Scope = Literal["read", "compile", "keys", "admin"]
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\u0000]*$")]

KEY_EXAMPLE: dict[str, Any] = {
    "id": KEY_ID,
    "owner": "ada",
    "label": "laptop",
    "role": "compiler",
    "scopes": ["read", "compile"],
    "state": "valid",
    "created_at": "2026-11-20T09:00:00.000Z",
    "expires_at": "2027-11-20T09:00:00.000Z",
    "revoked_at": None,
    "last_used_at": "2026-11-21T03:59:00.000Z",
    "replaced_by": None,
    "made_by": "019aa1d8-11c0-7a2e-8b44-0c9d5e7f6a10",
}
QUOTAS_EXAMPLE: dict[str, Any] = {
    "stored_bytes": {"limit": 10737418240, "used": 136314880},
    "queued_jobs": {"limit": 100, "used": 2},
    "concurrent_jobs": {"limit": None, "used": 1},
    "device_seconds": {"limit": 36000.0, "used": 512.5, "month": "2026-11", "resets_at": "2026-12-01T00:00:00.000Z"},
}
OWNER_EXAMPLE: dict[str, Any] = {
    "name": "ada",
    "state": "active",
    "created_at": "2026-11-20T09:00:00.000Z",
    "suspended_at": None,
    "quotas": QUOTAS_EXAMPLE,
    "granted": {"stored_bytes": 10737418240, "queued_jobs": None, "concurrent_jobs": None, "device_seconds": 36000.0},
}
ENTRY_EXAMPLE: dict[str, Any] = {
    "id": "019aa1f0-8a10-7f42-a0d1-6c2b9e5d4f17",
    "at": "2026-11-21T04:00:00.000Z",
    "owner": "ada",
    "key": KEY_ID,
    "request_id": "019aa1f0-7c2d-7d10-8a2f-9e4c1b7d5a60",
    "address": "203.0.113.7",
    "verb": "create",
    "object": "/jobs/019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11",
    "outcome": "done",
    "untold": 0,
}


class KeyOut(BaseModel):
    """A key, but for its text, which the service does not have."""

    model_config = ConfigDict(json_schema_extra={"example": KEY_EXAMPLE})

    id: uuid.UUID
    owner: str
    label: str
    role: Role = Field(description="The greatest role whose work it can do.")
    scopes: list[str]
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime | None = Field(description="Null: it does not end by itself.")
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To about a minute; null: never.")
    replaced_by: uuid.UUID | None = Field(description="The key that was made when this one was rotated.")
    made_by: uuid.UUID | None = Field(
        description="The key of the same owner that made it, with which it is revoked; null: an operator or the server."
    )

    @classmethod
    def of(cls, shown: Shown) -> Self:
        """From a row."""
        return cls(**_of_key(shown))


class NewKeyOut(KeyOut):
    """A key that was made just now, with its text."""

    model_config = ConfigDict(
        json_schema_extra={"example": {**KEY_EXAMPLE, "last_used_at": None, "key": "twk_shown-this-once"}}
    )

    key: str = Field(description="To be sent as `Authorization: Bearer <key>`. It cannot be asked for again.")

    @classmethod
    def made(cls, made: Made) -> Self:
        """From a row and the text."""
        return cls(**_of_key(made.shown), key=made.text)


def _of_key(shown: Shown) -> dict[str, Any]:
    row = shown.row
    return {
        "id": row.id,
        "owner": shown.owner,
        "label": row.label,
        "role": role_of(row.scopes),
        "scopes": row.scopes,
        "state": shown.state,
        "created_at": utc(row.created_at),
        "expires_at": _utc(row.expires_at),
        "revoked_at": _utc(row.revoked_at),
        "last_used_at": _utc(row.last_used_at),
        "replaced_by": row.replaced_by,
        "made_by": row.made_by,
    }


class KeyPage(BaseModel):
    """Keys, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"keys": [KEY_EXAMPLE], "next_cursor": None}})

    keys: list[KeyOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class KeyIn(RequestBody):
    """A key that is to be made."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"label": "laptop", "role": "compiler", "expires_at": "2099-11-20T09:00:00Z"}},
    )

    role: Role = Field("compiler", description="Scopes: no more than those of the key that makes it.")
    scopes: list[Scope] | None = Field(None, min_length=1, description="Scopes instead of a role.")
    label: Text = Field("", description="For people.")
    expires_at: Moment | None = Field(
        None, description="When it ends; no later than the key that makes it. Left out: when that one does."
    )
    owner: str | None = Field(
        None, pattern=NAME_PATTERN, description="Whose it is to be; another owner than one's own needs `admin`."
    )

    @property
    def wanted(self) -> list[str]:
        """The scopes, each once, in one order for all."""
        given = ROLES[self.role] if self.scopes is None else self.scopes
        return [scope for scope in ROLES["operator"] if scope in given]


class RotationIn(RequestBody):
    """How a key is to be replaced."""

    model_config = ConfigDict(json_schema_extra={"example": {"grace_s": 3600}})

    grace_s: float = Field(0.0, ge=0, le=LONGEST_GRACE_S, description="For how long the old one stays valid.")
    expires_at: Moment | None = Field(
        None, description="When the new one ends. Left out: when the old one would, but no later than the key used."
    )


class QuotaOut(BaseModel):
    """What an owner may have, and has."""

    limit: int | None = Field(description="Null: no limit.")
    used: int | None = Field(description="Null in a list of owners.")


class DeviceQuotaOut(BaseModel):
    """Device seconds of a calendar month."""

    limit: float | None = Field(description="Null: no limit.")
    used: float | None = Field(description="Null in a list of owners.")
    month: str | None = Field(description="In UTC.")
    resets_at: datetime | None


class QuotasOut(BaseModel):
    """An owner's limits, and what it has of each."""

    model_config = ConfigDict(json_schema_extra={"example": QUOTAS_EXAMPLE})

    stored_bytes: QuotaOut = Field(
        description="Models, artifacts, arrays of inferences, and uploads with the size that was announced."
    )
    queued_jobs: QuotaOut
    concurrent_jobs: QuotaOut = Field(description="Jobs that workers hold; the others wait.")
    device_seconds: DeviceQuotaOut

    @classmethod
    def of(cls, limits: Limits, use: Use | None) -> Self:
        """`use` None: it was not asked for."""
        return cls(
            stored_bytes=_quota(limits.stored_bytes, None if use is None else use.stored_bytes),
            queued_jobs=_quota(limits.queued_jobs, None if use is None else use.queued_jobs),
            concurrent_jobs=_quota(limits.concurrent_jobs, None if use is None else use.concurrent_jobs),
            device_seconds=DeviceQuotaOut(
                limit=limits.device_s or None,
                used=None if use is None else round(use.device_s, 3),
                month=None if use is None else use.month,
                resets_at=None if use is None else utc(use.month_ends),
            ),
        )


def _quota(limit: int, used: int | None) -> QuotaOut:
    return QuotaOut(limit=limit or None, used=used)


class Grants(RequestBody):
    """What an operator grants an owner instead of the installation's limits. 0: no limit; null: the installation's."""

    model_config = ConfigDict(json_schema_extra={"example": {"stored_bytes": 10737418240, "device_seconds": 36000}})

    stored_bytes: int | None = Field(None, ge=0, le=MOST)
    queued_jobs: int | None = Field(None, ge=0, le=MOST)
    concurrent_jobs: int | None = Field(None, ge=0, le=MOST)
    device_seconds: float | None = Field(None, ge=0, le=MOST_SECONDS, description="In a calendar month (UTC).")

    @property
    def given(self) -> dict[str, float | None]:
        """Those that were named, by the names of `service.jobs.accounts.quotas.Limits`."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return {"device_s" if name == "device_seconds" else name: value for name, value in given.items()}


class OwnerOut(BaseModel):
    """An owner, as an operator sees it."""

    model_config = ConfigDict(json_schema_extra={"example": OWNER_EXAMPLE})

    name: str
    state: Literal["active", "suspended", "deleting"]
    created_at: datetime
    suspended_at: datetime | None
    quotas: QuotasOut
    granted: Grants = Field(description="Limit granted to it; null: the limit of the installation.")

    @classmethod
    def of(cls, seen: Seen) -> Self:
        """From a row."""
        row = seen.row
        return cls(
            name=row.name,
            state=_state(row),
            created_at=utc(row.created_at),
            suspended_at=_utc(row.suspended_at),
            quotas=QuotasOut.of(seen.limits, seen.use),
            granted=Grants(
                stored_bytes=row.max_stored_bytes,
                queued_jobs=row.max_queued_jobs,
                concurrent_jobs=row.max_concurrent_jobs,
                device_seconds=row.max_device_s,
            ),
        )


class OwnerPage(BaseModel):
    """Owners by name."""

    model_config = ConfigDict(json_schema_extra={"example": {"owners": [OWNER_EXAMPLE], "next_cursor": None}})

    owners: list[OwnerOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class OwnerIn(RequestBody):
    """An owner that is to be made."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "ada", "quotas": {"device_seconds": 36000}}})

    name: str = Field(pattern=f"^{OWNER_NAME.pattern}$", description="1 to 100 letters, digits and `.`, `_`, `@`, `-`.")
    quotas: Grants | None = Field(None, description="Limits to grant.")


class OwnerChange(RequestBody):
    """What is to be different of an owner; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"suspended": False, "quotas": {"stored_bytes": 10737418240}}}
    )

    suspended: bool | None = Field(None, description="Whether its keys are refused and none of its jobs is started.")
    quotas: Grants | None = Field(None, description="What is granted; null takes a grant back.")


class OwnerRemovalOut(BaseModel):
    """What became of an owner that was to be deleted."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "ada",
                "stopping": 0,
                "deleted": {"jobs": 12, "artifacts": 7, "benchmarks": 2, "inferences": 1},
            }
        }
    )

    name: str
    stopping: int = Field(description="Jobs that must stop first; the rest is deleted afterwards by itself.")
    deleted: dict[str, int] = Field(description="By kind, of this request; `jobs` counts those of every kind.")

    @classmethod
    def of(cls, removal: Removal) -> Self:
        """From what was done."""
        return cls(name=removal.name, stopping=removal.stopping, deleted=vars(removal.deleted))


class MeOut(BaseModel):
    """Whose key it is that this request carries, and what it may do."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"owner": "ada", "key": KEY_EXAMPLE, "quotas": QUOTAS_EXAMPLE}}
    )

    owner: str
    key: KeyOut
    quotas: QuotasOut


class AuditOut(BaseModel):
    """Something that was done, or refused."""

    model_config = ConfigDict(json_schema_extra={"example": ENTRY_EXAMPLE})

    id: uuid.UUID
    at: datetime
    owner: str | None = Field(description="Whose key it was; null for an unknown key, and for the console.")
    key: uuid.UUID | None
    request_id: str = Field(description="`X-Request-Id` of the answer.")
    address: str = Field(description="Where the request came from; `console`: a chore of `python -m service`.")
    verb: str
    object: str = Field(description="The object, as a path of this API.")
    outcome: str = Field(description="`done`, or the `code` of the problem.")
    untold: int = Field(description="Refusals that were left out just before this one, because there were too many.")

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """From a row."""
        row = entry.row
        return cls(
            id=row.id,
            at=utc(row.created_at),
            owner=entry.owner,
            key=row.key_id,
            request_id=row.request_id,
            address=row.address,
            verb=row.verb,
            object=row.object,
            outcome=row.outcome,
            untold=row.untold,
        )


class AuditPage(BaseModel):
    """Entries of the audit log, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"entries": [ENTRY_EXAMPLE], "next_cursor": None}})

    entries: list[AuditOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


def _state(row: Owner) -> Literal["active", "suspended", "deleting"]:
    if row.deleted_at is not None:
        return "deleting"
    return "active" if row.suspended_at is None else "suspended"


def _utc(seconds: float | None) -> datetime | None:
    return None if seconds is None else utc(seconds)
