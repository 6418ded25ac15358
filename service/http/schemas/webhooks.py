"""Webhooks and what is sent to them, as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Delivery, Webhook
from service.http.schemas.common import JOB_EXAMPLE, RequestBody, utc

WEBHOOK_ID = "019aa1f5-3c11-7b02-9e6d-1f2a3b4c5d6e"
DELIVERY_ID = "019aa1f5-8d20-7c13-8a4b-2e3f4a5b6c7d"
URL = "https://ci.example.org/hooks/tilewright"

WEBHOOK_EXAMPLE: dict[str, Any] = {
    "id": WEBHOOK_ID,
    "url": URL,
    "states": ["FAILED", "SUCCEEDED"],
    "state": "verified",
    "created_at": "2026-11-21T04:00:00.000Z",
    "verified_at": "2026-11-21T04:00:01.000Z",
    "disabled_at": None,
    "links": {"self": f"/webhooks/{WEBHOOK_ID}", "deliveries": f"/webhooks/{WEBHOOK_ID}/deliveries"},
}
DELIVERY_EXAMPLE: dict[str, Any] = {
    "id": DELIVERY_ID,
    "job": JOB_EXAMPLE["id"],
    "state": "waiting",
    "attempts": 1,
    "status": 503,
    "fault": "it was answered with 503",
    "created_at": "2026-11-21T04:00:24.000Z",
    "next_at": "2026-11-21T04:00:29.000Z",
    "ended_at": None,
    "payload": '{"type":"job.succeeded","timestamp":"2026-11-21T04:00:24+00:00","data":{}}',
}

End = Literal["SUCCEEDED", "FAILED", "CANCELLED"]


class WebhookIn(RequestBody):
    """Whom to tell of what."""

    model_config = ConfigDict(json_schema_extra={"example": {"url": URL, "states": ["FAILED", "SUCCEEDED"]}})

    url: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="`https`, of a public address, unless the operator allows others."
    )
    secret: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="`whsec_` and the base64 of 24 to 64 bytes; left out: one is made."
    )
    states: Annotated[list[End], Field(max_length=3)] = Field(
        default_factory=list, description="Only jobs that end so; empty: all."
    )


class WebhookOut(BaseModel):
    """A webhook, but for its secret."""

    model_config = ConfigDict(json_schema_extra={"example": WEBHOOK_EXAMPLE})

    id: uuid.UUID
    url: str
    states: list[End] = Field(description="Only jobs that end so; empty: all.")
    state: Literal["unverified", "verified", "disabled"] = Field(
        description="`unverified`: messages wait for its challenge to be answered; `disabled`: it gets no messages."
    )
    created_at: datetime
    verified_at: datetime | None = Field(description="When the challenge was answered.")
    disabled_at: datetime | None = Field(
        description="Since when it gets no messages: it answered with 410, or never answered its challenge."
    )
    links: dict[str, str]

    @classmethod
    def of(cls, row: Webhook) -> Self:
        """From a row."""
        return cls(**_plain(row))


class NewWebhookOut(WebhookOut):
    """A webhook that was made just now; its secret is in this answer and nowhere else."""

    model_config = ConfigDict(
        json_schema_extra={"example": {**WEBHOOK_EXAMPLE, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
    )

    secret: str

    @classmethod
    def of(cls, row: Webhook) -> Self:
        """From a row."""
        return cls(**_plain(row), secret=row.secret)


class WebhookList(BaseModel):
    """All webhooks, newest first; an owner has few."""

    model_config = ConfigDict(json_schema_extra={"example": {"webhooks": [WEBHOOK_EXAMPLE]}})

    webhooks: list[WebhookOut]


class DeliveryOut(BaseModel):
    """A message to a webhook."""

    model_config = ConfigDict(json_schema_extra={"example": DELIVERY_EXAMPLE})

    id: uuid.UUID = Field(description="In the header `webhook-id` after `msg_`; the same for every attempt.")
    job: uuid.UUID | None = Field(description="That has ended; null for a test or challenge.")
    state: Literal["waiting", "delivered", "given_up"]
    attempts: int
    status: int | None = Field(description="That the last attempt was answered with.")
    fault: str | None = Field(description="Why the last attempt came to nothing.")
    created_at: datetime
    next_at: datetime | None = Field(description="When it is sent again.")
    ended_at: datetime | None
    payload: str = Field(description="The body, as it is signed.")

    @classmethod
    def of(cls, row: Delivery) -> Self:
        """From a row."""
        return cls(
            id=row.id,
            job=row.job_id,
            state="delivered" if row.delivered else "waiting" if row.next_at is not None else "given_up",
            attempts=row.attempts,
            status=row.status,
            fault=row.fault,
            created_at=utc(row.created_at),
            next_at=None if row.next_at is None else utc(row.next_at),
            ended_at=None if row.ended_at is None else utc(row.ended_at),
            payload=row.payload,
        )


class DeliveryPage(BaseModel):
    """Messages to a webhook, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"deliveries": [DELIVERY_EXAMPLE], "next_cursor": None}})

    deliveries: list[DeliveryOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


def _plain(row: Webhook) -> dict[str, Any]:
    here = f"/webhooks/{row.id}"
    return {
        "id": row.id,
        "url": row.url,
        "states": row.states,
        "state": "disabled" if row.disabled_at is not None else "unverified" if row.verified_at is None else "verified",
        "created_at": utc(row.created_at),
        "verified_at": None if row.verified_at is None else utc(row.verified_at),
        "disabled_at": None if row.disabled_at is None else utc(row.disabled_at),
        "links": {"self": here, "deliveries": f"{here}/deliveries"},
    }
